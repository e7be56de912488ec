"""The operations of an engine, written through the abstract ones of ``alpha.engine.Engine``: its defaults.

One module per family, with functions named like the engine's methods. They are the shortest definition of each
operation: right on every engine and dtype, and slow. An engine overrides what it does faster; what it leaves out works.
"""
