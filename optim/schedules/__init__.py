"""Schedules of the learning rate, by family; ``alpha.optim.lr_scheduler`` has them all."""
