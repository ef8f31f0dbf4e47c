"""Speed and memory of nscl, as ratios against a named reference in the same run."""
