"""A worker process of a benchmark that never answers, for ``test_gpu.py``."""

import time

if __name__ == "__main__":
    time.sleep(60)
