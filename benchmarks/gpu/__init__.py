"""What is done in minutes with a GPU: ``make gpu-tests``, ``make gpu-operators`` and ``make gpu-training``.

Each command has a deadline of its own, keeps every result as soon as there is one, and goes on where an earlier call
of it stopped, however that ended. The commands themselves need nothing but Python: whatever touches the GPU runs in
child processes, which can hang, die, or lose the device's context without taking the command along.
"""
