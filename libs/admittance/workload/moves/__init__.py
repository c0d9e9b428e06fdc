"""The functions that apply facts to a workload; the table of transitions names them."""
