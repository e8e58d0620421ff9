import errno

import pytest

from normlab.errors import RunError
from normlab.sweeps import files


def test_a_full_disk_is_one_sentence(tmp_path):
    with pytest.raises(RunError, match="No space left on device.*choose another out") as error, files.writing(tmp_path):
        raise OSError(errno.ENOSPC, "No space left on device")
    assert "\n" not in str(error.value)
