"""Where code is kept from one process to the next: never where another user could put some."""

import os
import stat

import pytest

from millstream.spark.kept_folder import kept_folder


@pytest.fixture
def home(tmp_path, monkeypatch):
    # As a home folder lies: every folder above belongs to root or to us, /tmp is sticky.
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "millstream"


def test_a_folder_of_our_own_is_made_and_used_again(home):
    assert kept_folder() == home
    assert stat.S_IMODE(home.stat().st_mode) == 0o700
    assert kept_folder() == home


def test_one_that_others_can_write_to_is_not_used(home):
    home.mkdir(parents=True)
    for mode in (0o777, 0o770, 0o1777):
        home.chmod(mode)
        assert kept_folder() is None
    home.chmod(0o700)
    assert kept_folder() == home


def test_one_whose_parent_others_can_write_to_is_not_used(home):
    home.mkdir(parents=True, mode=0o700)
    home.parent.chmod(0o777)
    assert kept_folder() is None
    home.parent.chmod(0o1777)  # sticky: what is ours stays where it is
    assert kept_folder() == home


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give folders away")
def test_one_of_another_user_is_not_used(home):
    home.mkdir(parents=True)
    os.chown(home, 12345, 12345)
    assert kept_folder() is None


def test_a_link_counts_for_what_it_leads_to(home, tmp_path):
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    elsewhere.chmod(0o777)
    home.parent.mkdir(parents=True)
    home.symlink_to(elsewhere)
    assert kept_folder() is None
    elsewhere.chmod(0o700)
    assert kept_folder() == home


def test_no_home_at_all(monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", "/proc/no-such-place")
    assert kept_folder() is None
