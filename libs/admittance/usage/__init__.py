"""What workloads have used, summed by day and month: facts of the log in, sums out. The package is
pure.

Every sum is a whole number: an amount in accounting units (`admittance.api.fields.units`) times
whole seconds. A summary stores the position on the log up to which it has facts, so a fact that is
read again is not counted again.
"""
