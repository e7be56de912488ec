"""Products of matrices on the CPU: the problem as a value, one file per algorithm, the list, and the planner."""
