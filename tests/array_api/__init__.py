"""The Python array API standard: our tests, and the conformance suite run from its checkout."""
