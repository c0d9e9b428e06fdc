"""What a container gets beside its program: variables and volumes."""
