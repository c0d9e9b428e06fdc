"""Commands that submit workloads, watch them, and change what becomes of them."""
