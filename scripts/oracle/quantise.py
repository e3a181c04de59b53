"""Quantised weights for make.py."""


def draw(c, family):
    return None
