"""What is wrong with an installation, found from outside: each function returns findings, each with
what to do. `admit doctor` prints them, with those of `admittance.cli.doctor` about services.
"""
