"""What is shown while a run goes on: a live view, plain lines or JSON.

A new kind of display is one class with the methods of ``display.Display``.
"""
