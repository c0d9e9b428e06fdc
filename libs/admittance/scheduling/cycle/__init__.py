"""One scheduling cycle: heads, nominate, order, process, requeue; the flavor assigner."""
