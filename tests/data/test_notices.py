"""Notices without a callback go to the library's logger, which is silent unless asked."""

import logging

import pytest

from nscl.data.notices import log_notice


def test_a_notice_is_an_info_of_the_librarys_logger(caplog: pytest.LogCaptureFixture) -> None:
    log_notice("unheard")
    with caplog.at_level(logging.INFO, logger="nscl.data"):
        log_notice("decoding takes a minute")
    assert caplog.record_tuples == [("nscl.data", logging.INFO, "decoding takes a minute")]
