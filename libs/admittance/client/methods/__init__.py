"""The methods of `Client` by subject: classes from which `Client` inherits."""
