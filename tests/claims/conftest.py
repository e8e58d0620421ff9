import sys
from pathlib import Path

# planted_worlds.py and flips.py, beside the tests that use them.
sys.path.insert(0, str(Path(__file__).parent))
