"""Point-wise functions as expressions: ``alpha.pointwise`` and what stands behind it.

``symbols`` is what a user's function is called with: it records the operations in a ``graph``, where equal ones are one
node. ``derivative`` makes the gradients in the same graph. ``program`` lists the nodes in an order in which they can be
computed: that is what an engine gets (``Engine.pointwise``). ``functions`` holds the decorator. ``elementary`` writes
exp, erf and their kin in an engine's ``arithmetic``, with the polynomials of ``coefficients``, which ``fit`` makes.
"""
