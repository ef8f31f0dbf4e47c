"""Choosing the strengths of methods: trials, their budget, and the record of the choice."""
