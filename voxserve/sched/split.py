"""Switching the SM split while work is in flight.

The lane that loses SMs switches at its next launch. The lane that gains stays on its old part,
which nobody else was given, until the other lane's old job has ended. Urgent work and prefills
run on the whole device and are unaffected.
"""

from __future__ import annotations

from voxserve.core.jobs import JobKind, LaneName
from voxserve.core.settings import Split
from voxserve.sched.board import Board


def follow_lm_split(board: Board) -> None:
    """Moves the LM lane to the wanted split if its next launch may use it."""
    wanted = board.settings.sm_split
    if board.lm_split is wanted:  # nearly always, and told faster than by their values
        return
    if board.lm_split != wanted and not (
        _gains(board.lm_split.lm_sms, wanted.lm_sms) and _has_old_job(board, LaneName.BACKGROUND)
    ):
        board.lm_split = wanted


def follow_codec_split(board: Board) -> bool:
    """The same for the background lane; False when it must not launch at all for now.

    When both lanes gain, the background lane pauses until the LM lane has switched: otherwise
    each would wait for the other's next old job for ever.
    """
    wanted = board.settings.sm_split
    if board.codec_split is wanted or board.codec_split == wanted:
        return True
    if not _gains(board.codec_split.codec_sms, wanted.codec_sms) or not _has_old_job(
        board, LaneName.LM
    ):
        board.codec_split = wanted
        return True
    lm_gains_too = board.lm_split != wanted and _gains(board.lm_split.lm_sms, wanted.lm_sms)
    return not lm_gains_too


def _gains(old_sms: int, new_sms: int) -> bool:
    """Whether a lane's own part grows (0 is the whole device, shared: it takes from nobody)."""
    return 0 < old_sms < new_sms


def _has_old_job(board: Board, lane: LaneName) -> bool:
    wanted: Split = board.settings.sm_split
    for job_id in board.lanes[lane]:
        job = board.jobs[job_id].job
        if job.kind is not JobKind.PREFILL and job.split != wanted:
            return True
    return False
