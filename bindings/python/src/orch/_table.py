# SPDX-License-Identifier: Apache-2.0
# Made by scripts/python-table from the public headers. Do not edit.
"""The C interface: every constant, error, callback, structure and function.

A handle is a c_void_p. A text that the caller has to free (char *) is a c_void_p too, so that its address is kept.
"""
# pylint: disable=invalid-name,missing-docstring
from ctypes import (CFUNCTYPE, POINTER, Structure, c_char_p, c_int32, c_int64, c_size_t, c_uint16, c_uint32, c_uint64,
                    c_void_p)
from typing import Any, Dict, List, Tuple


# broker.h
ORCH_CREDENTIAL_NONE = 0
ORCH_CREDENTIAL_API_KEY = 1
ORCH_CREDENTIAL_BEARER = 2
ORCH_GRANT_DENY = 1
ORCH_OPERATION_REFUSED = 1
ORCH_OPERATION_DISPATCHED = 2
ORCH_OPERATION_OBSERVED = 3
ORCH_OPERATION_FAILED = 4
ORCH_OPERATION_UNKNOWN = 5

# ctx.h
ORCH_LOG_ERROR = 1
ORCH_LOG_WARNING = 2
ORCH_LOG_NOTICE = 3
ORCH_LOG_DEBUG = 4

# executor.h
ORCH_EXECUTOR_MINI = 1
ORCH_EXECUTOR_CLAUDE = 2
ORCH_EXECUTOR_CODEX = 3
ORCH_EXECUTOR_COMMAND = 4
ORCH_EXECUTOR_CALLBACK = 5
ORCH_API_ANTHROPIC = 1
ORCH_API_OPENAI = 2
ORCH_JOB_EVENT_TEXT = 1
ORCH_JOB_EVENT_TOOL = 2
ORCH_JOB_EVENT_RESULT = 3
ORCH_JOB_EVENT_OTHER = 4
ORCH_JOB_FINISHED = 1
ORCH_JOB_STALLED = 2
ORCH_JOB_TIMED_OUT = 3
ORCH_JOB_FAILED = 4
ORCH_JOB_HUNG = 5

# journal.h
ORCH_ACTION_INTENT = 1
ORCH_ACTION_DISPATCHED = 2
ORCH_ACTION_OBSERVED = 3
ORCH_ACTION_CONFIRMED = 4
ORCH_ACTION_FAILED = 5
ORCH_ACTION_UNKNOWN = 6
ORCH_ACTION_HANDED_OVER = 7
ORCH_ACTION_ABANDONED = 8
ORCH_POLICY_REPEATABLE = 1
ORCH_POLICY_PROBE_FIRST = 2
ORCH_POLICY_NEVER_REPEAT = 3
ORCH_BEGIN_FRESH = 1
ORCH_BEGIN_REPLAY = 2
ORCH_BEGIN_ATTACHED = 3
ORCH_BEGIN_AMBIGUOUS = 4
ORCH_BEGIN_CONFLICT = 5
ORCH_JOURNAL_READ_ONLY = 1
ORCH_DECISION_APPLIED = 1
ORCH_DECISION_NOT_APPLIED = 2
ORCH_DECISION_ABANDON = 3
ORCH_QUERY_NEWEST_FIRST = 1
ORCH_OUTCOME_APPLIED = 1
ORCH_OUTCOME_NOT_APPLIED = 2
ORCH_OUTCOME_IN_FLIGHT = 3
ORCH_OUTCOME_UNKNOWN = 4
ORCH_RECOVER_CONTINUE = 1
ORCH_RECOVER_VERIFY = 2
ORCH_RECOVER_RETRY = 3
ORCH_RECOVER_HAND_OVER = 4
ORCH_RECOVER_ABANDON = 5
ORCH_RECORD_GENERATION = 1
ORCH_RECORD_ACTION = 2
ORCH_RECORD_PERMIT = 3
ORCH_RECORD_TIMER = 4
ORCH_RECORD_DECISION = 5
ORCH_RECORD_EPOCH = 6
ORCH_EXPORT_RECORDS = 1
ORCH_RESTORE_REPLACE = 1

# permit.h
ORCH_PERMIT_ISSUED = 1
ORCH_PERMIT_USED = 2
ORCH_PERMIT_EXPIRED = 3
ORCH_PERMIT_REVOKED = 4
ORCH_PERMIT_VOID = 5

# pipeline.h
ORCH_ROLE_PLANNER = 1
ORCH_ROLE_CHECKER = 2
ORCH_ROLE_EXECUTOR = 3
ORCH_ROLE_REVIEWER = 4
ORCH_RUN_INTAKE = 1
ORCH_RUN_CLARIFY = 2
ORCH_RUN_FROZEN = 3
ORCH_RUN_PLANNED = 4
ORCH_RUN_EXECUTING = 5
ORCH_RUN_ACCEPTING = 6
ORCH_RUN_DELIVERED = 7
ORCH_RUN_PARTIAL = 8
ORCH_RUN_ABORTED = 9
ORCH_OVERLAY_QUOTA_WAIT = 1
ORCH_OVERLAY_BUDGET_STOP = 2
ORCH_OVERLAY_NEEDS_HUMAN = 4
ORCH_OVERLAY_RECOVERING = 8
ORCH_PIPELINE_RESUME = 1
ORCH_PIPELINE_NO_REVIEW = 2

# sandbox.h
ORCH_ROOT_EMPTY = 1
ORCH_ROOT_TOOLS = 2
ORCH_NET_NONE = 1
ORCH_NET_BROKER = 2
ORCH_BROKER_PORT = 8080
ORCH_PATH_READ = 1
ORCH_PATH_WRITE = 2
ORCH_PATH_EXEC = 4
ORCH_PATH_OWN = 8
ORCH_PROTECT_REQUIRED = 1
ORCH_PROTECT_DEGRADABLE = 2
ORCH_PROTECT_OFF = 3
ORCH_CHANGE_ADDED = 1
ORCH_CHANGE_MODIFIED = 2
ORCH_CHANGE_DELETED = 3
ORCH_CHANNEL_ENFORCED = 1
ORCH_CHANNEL_PARTIAL = 2
ORCH_CHANNEL_ABSENT = 3
ORCH_PROBE_PASSED = 1
ORCH_PROBE_FAILED = 2
ORCH_PROBE_NOT_RUN = 3

# scope.h
ORCH_RUNG_SUBREAPER = 1
ORCH_RUNG_CGROUP = 2
ORCH_RUNG_PIDNS = 3
ORCH_RUNG_CGROUP_PIDNS = 4
ORCH_LIMIT_MEMORY = 1
ORCH_LIMIT_PROCESSES = 2
ORCH_LIMIT_CPU = 4
ORCH_LIMIT_TIME = 8
ORCH_LIMIT_UNASKED = 1
ORCH_LIMIT_ENFORCED = 2
ORCH_LIMIT_PARTIAL = 3
ORCH_LIMIT_ABSENT = 4
ORCH_PROC_STARTED = 1
ORCH_PROC_FAILED = 2
ORCH_PROC_EXITED = 3
ORCH_PROC_LEADER = 1
ORCH_REASON_EXITED = 1
ORCH_REASON_SIGNALED = 2
ORCH_REASON_MEMORY = 3
ORCH_REASON_TIME = 4
ORCH_REASON_STOPPED = 5
ORCH_REASON_SETUP = 6
ORCH_REASON_LOST = 7
ORCH_REASON_DISK = 8
ORCH_DEATH_DEAD = 1
ORCH_DEATH_DEAD_UNREAPED = 2
ORCH_DEATH_SURVIVORS = 3
ORCH_DEATH_UNVERIFIABLE = 4

# stream.h
ORCH_STREAM_OUTPUT = 1
ORCH_STREAM_INPUT = 2
ORCH_STREAM_PTY = 3
ORCH_STREAM_EOF = 1
ORCH_STREAM_CUT = 2
ORCH_STREAM_CLOSED = 3
ORCH_STREAM_BROKEN = 4
ORCH_STREAM_HOLD = 1
ORCH_STREAM_PAUSED = 2

# timer.h
ORCH_TIMER_PENDING = 1
ORCH_TIMER_DONE = 2
ORCH_TIMER_CANCELED = 3

# version.h
ORCH_VERSION_MAJOR = 0
ORCH_VERSION_MINOR = 1
ORCH_VERSION_PATCH = 0
ORCH_VERSION_STRING = "0.1.0"

ERRORS: Dict[str, int] = {
    "ORCH_EINVAL": -1,
    "ORCH_ENOMEM": -2,
    "ORCH_ESYS": -3,
    "ORCH_E2BIG": -4,
    "ORCH_ETIMEDOUT": -5,
    "ORCH_EDEADLK": -6,
    "ORCH_EFORKED": -7,
    "ORCH_EBUSY": -8,
    "ORCH_ECLOSED": -9,
    "ORCH_ENOENT": -10,
    "ORCH_EEXIST": -11,
    "ORCH_EUNENFORCEABLE": -12,
    "ORCH_EVERSION": -13,
    "ORCH_EHELPER": -14,
    "ORCH_EPROTO": -15,
    "ORCH_ECANCELED": -16,
    "ORCH_ESTATE": -17,
    "ORCH_ECONFLICT": -18,
    "ORCH_EAMBIGUOUS": -19,
    "ORCH_EPERMIT": -20,
    "ORCH_ELOCKED": -21,
    "ORCH_ESCHEMA": -22,
    "ORCH_ENETFS": -23,
    "ORCH_EPOISONED": -24,
    "ORCH_ECORRUPT": -25,
    "ORCH_ENOSPC": -26,
    "ORCH_EDENIED": -27,
    "ORCH_EBUDGET": -28,
    "ORCH_EUPSTREAM": -29,
    "ORCH_EPARSE": -30,
    "ORCH_ETOOBIG": -31,
    "ORCH_ENOTSUP": -32,
    "ORCH_ESPAWN": -33,
    "ORCH_ENEEDHUMAN": -34,
    "ORCH_OK": 0,
}

orch_destroy_fn = CFUNCTYPE(None, c_void_p)
orch_log_fn = CFUNCTYPE(None, c_void_p, c_uint32, c_char_p)
orch_begin_fn = CFUNCTYPE(None, c_void_p, c_uint32, c_void_p, c_void_p)
orch_recorded_fn = CFUNCTYPE(None, c_void_p, c_int32, c_void_p)
orch_move_fn = CFUNCTYPE(None, c_void_p, c_void_p, c_void_p)
orch_action_fn = CFUNCTYPE(c_int32, c_void_p, c_void_p)
orch_probe_fn = CFUNCTYPE(None, c_void_p, c_void_p, c_void_p)
orch_decide_fn = CFUNCTYPE(c_uint32, c_void_p, c_void_p, c_uint32, c_uint32)
orch_hand_over_fn = CFUNCTYPE(None, c_void_p, c_void_p)
orch_record_fn = CFUNCTYPE(c_int32, c_void_p, c_void_p)
orch_export_fn = CFUNCTYPE(c_int32, c_void_p, c_void_p, c_size_t)
orch_stream_data_fn = CFUNCTYPE(None, c_void_p, c_void_p, c_void_p, c_size_t)
orch_stream_end_fn = CFUNCTYPE(None, c_void_p, c_void_p, c_uint32)
orch_stream_writable_fn = CFUNCTYPE(None, c_void_p, c_void_p)
orch_proc_fn = CFUNCTYPE(None, c_void_p, c_void_p, c_uint32)
orch_death_fn = CFUNCTYPE(None, c_void_p, c_void_p, c_void_p)
orch_settle_fn = CFUNCTYPE(None, c_void_p, c_void_p, c_void_p)
orch_revoke_fn = CFUNCTYPE(None, c_void_p, c_void_p, c_uint32, c_uint32)
orch_operation_fn = CFUNCTYPE(None, c_void_p, c_void_p, c_char_p, c_uint32, c_char_p, c_int32, c_int64)
orch_sandbox_start_fn = CFUNCTYPE(None, c_void_p, c_void_p, c_void_p)
orch_sandbox_connect_fn = CFUNCTYPE(None, c_void_p, c_int32, c_void_p)
orch_job_fn = CFUNCTYPE(None, c_void_p, c_void_p)
orch_job_event_fn = CFUNCTYPE(None, c_void_p, c_void_p, c_uint32, c_char_p)
orch_job_done_fn = CFUNCTYPE(None, c_void_p, c_void_p, c_uint32, c_int32, c_char_p)
orch_permit_fn = CFUNCTYPE(c_int32, c_void_p, c_void_p)
orch_pipeline_event_fn = CFUNCTYPE(None, c_void_p, c_char_p)
orch_timer_each_fn = CFUNCTYPE(c_int32, c_void_p, c_void_p)
orch_timer_due_fn = CFUNCTYPE(None, c_void_p, c_void_p)


class orch_ctx_opts(Structure):
    _fields_ = [
        ("size", c_uint32),
        ("flags", c_uint32),
        ("helper_path", c_char_p),
        ("log", orch_log_fn),
        ("log_userdata", c_void_p),
        ("log_destroy", orch_destroy_fn),
        ("log_level", c_uint32),
        ("reserved", c_uint32),
    ]


class orch_journal_opts(Structure):
    _fields_ = [
        ("size", c_uint32),
        ("flags", c_uint32),
        ("path", c_char_p),
        ("anchor_path", c_char_p),
        ("payload_limit", c_uint64),
        ("on_record", CFUNCTYPE(None, c_void_p, c_uint64)),
        ("userdata", c_void_p),
        ("destroy", orch_destroy_fn),
    ]


class orch_action_opts(Structure):
    _fields_ = [
        ("size", c_uint32),
        ("flags", c_uint32),
        ("kind", c_char_p),
        ("key", c_char_p),
        ("policy", c_uint32),
        ("reserved", c_uint32),
        ("request", c_void_p),
        ("request_length", c_size_t),
        ("fingerprint", c_void_p),
        ("fingerprint_length", c_size_t),
        ("permit", c_char_p),
    ]


class orch_query_opts(Structure):
    _fields_ = [
        ("size", c_uint32),
        ("flags", c_uint32),
        ("kind_prefix", c_char_p),
        ("key_prefix", c_char_p),
        ("states", c_uint32),
        ("limit", c_uint32),
        ("updated_from_ms", c_int64),
        ("updated_before_ms", c_int64),
        ("after_id", c_uint64),
    ]


class orch_recover_opts(Structure):
    _fields_ = [
        ("size", c_uint32),
        ("flags", c_uint32),
        ("kind_prefix", c_char_p),
        ("probe", orch_probe_fn),
        ("decide", orch_decide_fn),
        ("hand_over", orch_hand_over_fn),
        ("userdata", c_void_p),
    ]


class orch_restore_opts(Structure):
    _fields_ = [
        ("size", c_uint32),
        ("flags", c_uint32),
        ("backup_path", c_char_p),
        ("path", c_char_p),
        ("anchor_path", c_char_p),
    ]


class orch_stream_opts(Structure):
    _fields_ = [
        ("size", c_uint32),
        ("flags", c_uint32),
        ("kind", c_uint32),
        ("reserved", c_uint32),
        ("rows", c_uint32),
        ("columns", c_uint32),
        ("capture_first_bytes", c_uint64),
        ("capture_last_bytes", c_uint64),
        ("queue_limit_bytes", c_uint64),
        ("data", orch_stream_data_fn),
        ("end", orch_stream_end_fn),
        ("writable", orch_stream_writable_fn),
        ("userdata", c_void_p),
        ("destroy", orch_destroy_fn),
    ]


class orch_scope_opts(Structure):
    _fields_ = [
        ("size", c_uint32),
        ("flags", c_uint32),
        ("label", c_char_p),
        ("least_rung", c_uint32),
        ("setup_timeout_ms", c_uint32),
        ("best_rung", c_uint32),
        ("time_limit_ms", c_uint32),
        ("memory_limit_bytes", c_uint64),
        ("process_limit", c_uint32),
        ("cpu_limit_percent", c_uint32),
        ("required_limits", c_uint32),
        ("reserved", c_uint32),
    ]


class orch_proc_opts(Structure):
    _fields_ = [
        ("size", c_uint32),
        ("flags", c_uint32),
        ("argv", POINTER(c_char_p)),
        ("envp", POINTER(c_char_p)),
        ("cwd", c_char_p),
        ("stdin_fd", c_int32),
        ("stdout_fd", c_int32),
        ("stderr_fd", c_int32),
        ("reserved", c_uint32),
        ("event", orch_proc_fn),
        ("userdata", c_void_p),
        ("destroy", orch_destroy_fn),
        ("stdin_stream", c_void_p),
        ("stdout_stream", c_void_p),
        ("stderr_stream", c_void_p),
    ]


class orch_stop_opts(Structure):
    _fields_ = [
        ("size", c_uint32),
        ("flags", c_uint32),
        ("grace_ms", c_uint32),
        ("deadline_ms", c_uint32),
    ]


class orch_broker_opts(Structure):
    _fields_ = [
        ("size", c_uint32),
        ("flags", c_uint32),
        ("journal", c_void_p),
        ("journal_path", c_char_p),
        ("connect_timeout_ms", c_uint32),
        ("idle_timeout_ms", c_uint32),
    ]


class orch_upstream_opts(Structure):
    _fields_ = [
        ("size", c_uint32),
        ("flags", c_uint32),
        ("base_url", c_char_p),
        ("credential", c_uint32),
        ("reserved", c_uint32),
        ("secret", c_char_p),
        ("input_price_micro_usd_per_mtok", c_uint64),
        ("output_price_micro_usd_per_mtok", c_uint64),
        ("max_output_tokens", c_uint32),
        ("reserved2", c_uint32),
    ]


class orch_principal_opts(Structure):
    _fields_ = [
        ("size", c_uint32),
        ("flags", c_uint32),
        ("name", c_char_p),
        ("generation", c_uint64),
        ("max_requests", c_uint64),
        ("max_tokens", c_uint64),
        ("max_micro_usd", c_uint64),
    ]


class orch_grant_opts(Structure):
    _fields_ = [
        ("size", c_uint32),
        ("flags", c_uint32),
        ("operation", c_char_p),
        ("url", c_char_p),
        ("probe_url", c_char_p),
        ("max_uses", c_uint64),
        ("expires_at_ms", c_int64),
        ("key_prefix", c_char_p),
    ]


class orch_sandbox_opts(Structure):
    _fields_ = [
        ("size", c_uint32),
        ("flags", c_uint32),
        ("label", c_char_p),
        ("root", c_uint32),
        ("net", c_uint32),
        ("least_rung", c_uint32),
        ("setup_timeout_ms", c_uint32),
        ("max_processes", c_uint32),
        ("max_open_files", c_uint32),
        ("max_file_mib", c_uint64),
        ("tmp_mib", c_uint64),
        ("max_memory_mib", c_uint64),
        ("max_cpu_percent", c_uint32),
        ("reserved", c_uint32),
        ("time_limit_ms", c_int64),
    ]


class orch_run_opts(Structure):
    _fields_ = [
        ("size", c_uint32),
        ("flags", c_uint32),
        ("timeout_ms", c_int64),
        ("output_limit", c_uint64),
        ("input", c_void_p),
        ("input_length", c_size_t),
    ]


class orch_executor_opts(Structure):
    _fields_ = [
        ("size", c_uint32),
        ("flags", c_uint32),
        ("kind", c_uint32),
        ("api", c_uint32),
        ("model", c_char_p),
        ("argv", POINTER(c_char_p)),
        ("program", c_char_p),
        ("job", orch_job_fn),
        ("userdata", c_void_p),
        ("destroy", orch_destroy_fn),
    ]


class orch_job_opts(Structure):
    _fields_ = [
        ("size", c_uint32),
        ("flags", c_uint32),
        ("packet", c_char_p),
        ("timeout_ms", c_uint32),
        ("stall_ms", c_uint32),
        ("event", orch_job_event_fn),
        ("done", orch_job_done_fn),
        ("userdata", c_void_p),
        ("destroy", orch_destroy_fn),
    ]


class orch_permit_opts(Structure):
    _fields_ = [
        ("size", c_uint32),
        ("flags", c_uint32),
        ("name", c_char_p),
        ("kind", c_char_p),
        ("fingerprint", c_void_p),
        ("fingerprint_length", c_size_t),
        ("expires_at_ms", c_int64),
        ("note", c_void_p),
        ("note_length", c_size_t),
    ]


class orch_pipeline_opts(Structure):
    _fields_ = [
        ("size", c_uint32),
        ("flags", c_uint32),
        ("state_dir", c_char_p),
        ("anchor_path", c_char_p),
        ("idea", c_char_p),
        ("repo_dir", c_char_p),
        ("base_rev", c_char_p),
        ("schema_dir", c_char_p),
        ("jobs", c_uint32),
        ("max_attempts", c_uint32),
        ("max_requests", c_uint64),
        ("max_tokens", c_uint64),
        ("max_micro_usd", c_uint64),
        ("max_seconds", c_uint64),
        ("answer_timeout_ms", c_int64),
        ("description", c_char_p),
        ("on_record", CFUNCTYPE(None, c_void_p, c_uint64)),
        ("on_record_userdata", c_void_p),
        ("on_record_destroy", orch_destroy_fn),
    ]


class orch_reaper_recover_opts(Structure):
    _fields_ = [
        ("size", c_uint32),
        ("flags", c_uint32),
        ("path", c_char_p),
        ("deadline_ms", c_uint32),
        ("reserved", c_uint32),
    ]


class orch_timer_opts(Structure):
    _fields_ = [
        ("size", c_uint32),
        ("flags", c_uint32),
        ("name", c_char_p),
        ("due_at_ms", c_int64),
        ("delay_ms", c_int64),
        ("payload", c_void_p),
        ("payload_length", c_size_t),
    ]


CALLBACKS: Dict[str, Any] = {
    "orch_destroy_fn": orch_destroy_fn,
    "orch_log_fn": orch_log_fn,
    "orch_begin_fn": orch_begin_fn,
    "orch_recorded_fn": orch_recorded_fn,
    "orch_move_fn": orch_move_fn,
    "orch_action_fn": orch_action_fn,
    "orch_probe_fn": orch_probe_fn,
    "orch_decide_fn": orch_decide_fn,
    "orch_hand_over_fn": orch_hand_over_fn,
    "orch_record_fn": orch_record_fn,
    "orch_export_fn": orch_export_fn,
    "orch_stream_data_fn": orch_stream_data_fn,
    "orch_stream_end_fn": orch_stream_end_fn,
    "orch_stream_writable_fn": orch_stream_writable_fn,
    "orch_proc_fn": orch_proc_fn,
    "orch_death_fn": orch_death_fn,
    "orch_settle_fn": orch_settle_fn,
    "orch_revoke_fn": orch_revoke_fn,
    "orch_operation_fn": orch_operation_fn,
    "orch_sandbox_start_fn": orch_sandbox_start_fn,
    "orch_sandbox_connect_fn": orch_sandbox_connect_fn,
    "orch_job_fn": orch_job_fn,
    "orch_job_event_fn": orch_job_event_fn,
    "orch_job_done_fn": orch_job_done_fn,
    "orch_permit_fn": orch_permit_fn,
    "orch_pipeline_event_fn": orch_pipeline_event_fn,
    "orch_timer_each_fn": orch_timer_each_fn,
    "orch_timer_due_fn": orch_timer_due_fn,
}


STRUCTS: Dict[str, Any] = {
    "orch_ctx_opts": orch_ctx_opts,
    "orch_journal_opts": orch_journal_opts,
    "orch_action_opts": orch_action_opts,
    "orch_query_opts": orch_query_opts,
    "orch_recover_opts": orch_recover_opts,
    "orch_restore_opts": orch_restore_opts,
    "orch_stream_opts": orch_stream_opts,
    "orch_scope_opts": orch_scope_opts,
    "orch_proc_opts": orch_proc_opts,
    "orch_stop_opts": orch_stop_opts,
    "orch_broker_opts": orch_broker_opts,
    "orch_upstream_opts": orch_upstream_opts,
    "orch_principal_opts": orch_principal_opts,
    "orch_grant_opts": orch_grant_opts,
    "orch_sandbox_opts": orch_sandbox_opts,
    "orch_run_opts": orch_run_opts,
    "orch_executor_opts": orch_executor_opts,
    "orch_job_opts": orch_job_opts,
    "orch_permit_opts": orch_permit_opts,
    "orch_pipeline_opts": orch_pipeline_opts,
    "orch_reaper_recover_opts": orch_reaper_recover_opts,
    "orch_timer_opts": orch_timer_opts,
}

#: Name: (result, arguments).
FUNCTIONS: Dict[str, Tuple[Any, List[Any]]] = {
    "orch_version": (c_char_p, []),
    "orch_code_name": (c_char_p, [c_int32]),
    "orch_code_text": (c_char_p, [c_int32]),
    "orch_error_code": (c_int32, [c_void_p]),
    "orch_error_errno": (c_int32, [c_void_p]),
    "orch_error_message": (c_char_p, [c_void_p]),
    "orch_error_step": (c_char_p, [c_void_p]),
    "orch_error_free": (c_void_p, [c_void_p]),
    "orch_ctx_opts_init": (None, [POINTER(orch_ctx_opts), c_uint32]),
    "orch_ctx_new": (c_int32, [POINTER(orch_ctx_opts), POINTER(c_void_p), POINTER(c_void_p)]),
    "orch_ctx_ref": (c_void_p, [c_void_p]),
    "orch_ctx_unref": (c_void_p, [c_void_p]),
    "orch_ctx_run": (c_int32, [c_void_p, c_int64, POINTER(c_void_p)]),
    "orch_ctx_quit": (c_int32, [c_void_p]),
    "orch_ctx_fd": (c_int32, [c_void_p]),
    "orch_ctx_process": (c_int32, [c_void_p, POINTER(c_void_p)]),
    "orch_ctx_wakeup": (c_int32, [c_void_p]),
    "orch_journal_opts_init": (None, [POINTER(orch_journal_opts), c_uint32]),
    "orch_journal_open": (c_int32, [POINTER(orch_journal_opts), POINTER(c_void_p), POINTER(c_void_p)]),
    "orch_journal_ref": (c_void_p, [c_void_p]),
    "orch_journal_unref": (c_void_p, [c_void_p]),
    "orch_journal_generation": (c_uint64, [c_void_p]),
    "orch_journal_sequence": (c_uint64, [c_void_p]),
    "orch_journal_epoch": (c_uint64, [c_void_p]),
    "orch_action_opts_init": (None, [POINTER(orch_action_opts), c_uint32]),
    "orch_journal_begin": (c_int32, [c_void_p, POINTER(orch_action_opts), POINTER(c_uint32), POINTER(c_void_p),
                           POINTER(c_void_p)]),
    "orch_journal_record": (c_int32, [c_void_p, c_char_p, c_char_p, c_void_p, c_size_t, POINTER(c_int32),
                            POINTER(c_void_p)]),
    "orch_journal_begin_async": (c_int32, [c_void_p, c_void_p, POINTER(orch_action_opts), orch_begin_fn, c_void_p,
                                 orch_destroy_fn, POINTER(c_void_p)]),
    "orch_journal_record_async": (c_int32, [c_void_p, c_void_p, c_char_p, c_char_p, c_void_p, c_size_t,
                                  orch_recorded_fn, c_void_p, orch_destroy_fn, POINTER(c_void_p)]),
    "orch_action_ref": (c_void_p, [c_void_p]),
    "orch_action_unref": (c_void_p, [c_void_p]),
    "orch_action_dispatch": (c_int32, [c_void_p, POINTER(c_void_p)]),
    "orch_action_observe": (c_int32, [c_void_p, c_void_p, c_size_t, POINTER(c_void_p)]),
    "orch_action_confirm": (c_int32, [c_void_p, POINTER(c_void_p)]),
    "orch_action_fail": (c_int32, [c_void_p, c_void_p, c_size_t, POINTER(c_void_p)]),
    "orch_action_unknown": (c_int32, [c_void_p, c_void_p, c_size_t, POINTER(c_void_p)]),
    "orch_action_hand_over": (c_int32, [c_void_p, c_void_p, c_size_t, POINTER(c_void_p)]),
    "orch_action_abandon": (c_int32, [c_void_p, c_void_p, c_size_t, POINTER(c_void_p)]),
    "orch_action_move_async": (c_int32, [c_void_p, c_void_p, c_uint32, c_void_p, c_size_t, orch_move_fn, c_void_p,
                               orch_destroy_fn, POINTER(c_void_p)]),
    "orch_action_decide": (c_int32, [c_void_p, c_uint32, c_char_p, c_void_p, c_size_t, POINTER(c_void_p)]),
    "orch_action_decision": (c_uint32, [c_void_p, POINTER(c_char_p), POINTER(c_int64)]),
    "orch_action_id": (c_uint64, [c_void_p]),
    "orch_action_kind": (c_char_p, [c_void_p]),
    "orch_action_key": (c_char_p, [c_void_p]),
    "orch_action_state": (c_uint32, [c_void_p]),
    "orch_action_state_name": (c_char_p, [c_uint32]),
    "orch_action_policy": (c_uint32, [c_void_p]),
    "orch_action_attempt": (c_uint32, [c_void_p]),
    "orch_action_generation": (c_uint64, [c_void_p]),
    "orch_action_updated_at_ms": (c_int64, [c_void_p]),
    "orch_action_created_at_ms": (c_int64, [c_void_p]),
    "orch_action_pruned": (c_int32, [c_void_p]),
    "orch_action_request": (c_void_p, [c_void_p, POINTER(c_size_t)]),
    "orch_action_result": (c_void_p, [c_void_p, POINTER(c_size_t)]),
    "orch_journal_each": (c_int32, [c_void_p, c_char_p, orch_action_fn, c_void_p, POINTER(c_void_p)]),
    "orch_query_opts_init": (None, [POINTER(orch_query_opts), c_uint32]),
    "orch_journal_query": (c_int32, [c_void_p, POINTER(orch_query_opts), orch_action_fn, c_void_p,
                           POINTER(c_void_p)]),
    "orch_journal_find": (c_int32, [c_void_p, c_char_p, POINTER(c_void_p), POINTER(c_void_p)]),
    "orch_probe_reply_answer": (c_int32, [c_void_p, c_uint32, c_void_p, c_size_t]),
    "orch_action_resolve": (c_int32, [c_void_p, c_uint32, c_void_p, c_size_t, POINTER(c_void_p)]),
    "orch_recover_opts_init": (None, [POINTER(orch_recover_opts), c_uint32]),
    "orch_journal_recover": (c_int32, [c_void_p, POINTER(orch_recover_opts), POINTER(c_void_p), POINTER(c_void_p)]),
    "orch_recovery_unref": (c_void_p, [c_void_p]),
    "orch_recovery_count": (c_uint32, [c_void_p]),
    "orch_recovery_row": (c_int32, [c_void_p, c_uint32, POINTER(c_void_p), POINTER(c_uint32), POINTER(c_uint32),
                          POINTER(c_char_p)]),
    "orch_recovery_text": (c_char_p, [c_void_p]),
    "orch_journal_verify": (c_int32, [c_void_p, POINTER(c_uint64), POINTER(c_void_p)]),
    "orch_record_sequence": (c_uint64, [c_void_p]),
    "orch_record_at_ms": (c_int64, [c_void_p]),
    "orch_record_generation": (c_uint64, [c_void_p]),
    "orch_record_type": (c_uint32, [c_void_p]),
    "orch_record_type_name": (c_char_p, [c_uint32]),
    "orch_record_subject": (c_uint64, [c_void_p]),
    "orch_record_name": (c_char_p, [c_void_p]),
    "orch_record_kind": (c_char_p, [c_void_p]),
    "orch_record_state": (c_uint32, [c_void_p]),
    "orch_record_state_name": (c_char_p, [c_void_p]),
    "orch_record_attempt": (c_uint32, [c_void_p]),
    "orch_journal_records": (c_int32, [c_void_p, c_uint64, orch_record_fn, c_void_p, POINTER(c_void_p)]),
    "orch_journal_watch": (c_int32, [c_void_p, c_void_p, c_uint64, orch_record_fn, c_void_p, orch_destroy_fn,
                           POINTER(c_void_p), POINTER(c_void_p)]),
    "orch_watch_unref": (c_void_p, [c_void_p]),
    "orch_journal_prune": (c_int32, [c_void_p, c_int64, POINTER(c_uint64), POINTER(c_uint64), POINTER(c_void_p)]),
    "orch_journal_export": (c_int32, [c_void_p, c_uint32, orch_export_fn, c_void_p, POINTER(c_void_p)]),
    "orch_journal_backup": (c_int32, [c_void_p, c_char_p, POINTER(c_uint64), POINTER(c_void_p)]),
    "orch_restore_opts_init": (None, [POINTER(orch_restore_opts), c_uint32]),
    "orch_journal_restore": (c_int32, [POINTER(orch_restore_opts), POINTER(c_void_p), POINTER(c_void_p)]),
    "orch_restoration_unref": (c_void_p, [c_void_p]),
    "orch_restoration_epoch": (c_uint64, [c_void_p]),
    "orch_restoration_records": (c_uint64, [c_void_p]),
    "orch_restoration_lost": (c_uint64, [c_void_p]),
    "orch_restoration_unknown": (c_uint32, [c_void_p]),
    "orch_restoration_void": (c_uint32, [c_void_p]),
    "orch_restoration_replaced": (c_char_p, [c_void_p]),
    "orch_restoration_text": (c_char_p, [c_void_p]),
    "orch_stream_opts_init": (None, [POINTER(orch_stream_opts), c_uint32]),
    "orch_stream_new": (c_int32, [c_void_p, POINTER(orch_stream_opts), POINTER(c_void_p), POINTER(c_void_p)]),
    "orch_stream_ref": (c_void_p, [c_void_p]),
    "orch_stream_unref": (c_void_p, [c_void_p]),
    "orch_stream_pause": (c_int32, [c_void_p, POINTER(c_void_p)]),
    "orch_stream_resume": (c_int32, [c_void_p, POINTER(c_void_p)]),
    "orch_stream_write": (c_int32, [c_void_p, c_void_p, c_size_t, POINTER(c_size_t), POINTER(c_void_p)]),
    "orch_stream_close": (c_int32, [c_void_p, POINTER(c_void_p)]),
    "orch_stream_resize": (c_int32, [c_void_p, c_uint32, c_uint32, POINTER(c_void_p)]),
    "orch_stream_end_wait": (c_int32, [c_void_p, c_int64, POINTER(c_uint32), POINTER(c_void_p)]),
    "orch_stream_reason": (c_uint32, [c_void_p]),
    "orch_stream_bytes": (c_uint64, [c_void_p]),
    "orch_stream_queued": (c_uint64, [c_void_p]),
    "orch_stream_captured": (c_void_p, [c_void_p, POINTER(c_size_t)]),
    "orch_stream_dropped": (c_uint64, [c_void_p]),
    "orch_scope_opts_init": (None, [POINTER(orch_scope_opts), c_uint32]),
    "orch_scope_new": (c_int32, [c_void_p, POINTER(orch_scope_opts), POINTER(c_void_p), POINTER(c_void_p)]),
    "orch_scope_ref": (c_void_p, [c_void_p]),
    "orch_scope_unref": (c_void_p, [c_void_p]),
    "orch_scope_start_wait": (c_int32, [c_void_p, c_int64, POINTER(c_void_p)]),
    "orch_scope_name": (c_char_p, [c_void_p]),
    "orch_scope_rung": (c_uint32, [c_void_p]),
    "orch_scope_init_pid": (c_int32, [c_void_p]),
    "orch_scope_pidns_inode": (c_uint64, [c_void_p]),
    "orch_scope_cgroup": (c_char_p, [c_void_p]),
    "orch_scope_limit": (c_int32, [c_void_p, c_uint32, POINTER(c_uint32), POINTER(c_char_p)]),
    "orch_proc_opts_init": (None, [POINTER(orch_proc_opts), c_uint32]),
    "orch_scope_spawn": (c_int32, [c_void_p, POINTER(orch_proc_opts), POINTER(c_void_p), POINTER(c_void_p)]),
    "orch_proc_ref": (c_void_p, [c_void_p]),
    "orch_proc_unref": (c_void_p, [c_void_p]),
    "orch_proc_pid": (c_int32, [c_void_p]),
    "orch_proc_exit_code": (c_int32, [c_void_p]),
    "orch_proc_term_signal": (c_int32, [c_void_p]),
    "orch_proc_reason": (c_uint32, [c_void_p]),
    "orch_proc_error": (c_void_p, [c_void_p]),
    "orch_proc_signal": (c_int32, [c_void_p, c_int32, POINTER(c_void_p)]),
    "orch_proc_wait": (c_int32, [c_void_p, c_int64, POINTER(c_int32), POINTER(c_void_p)]),
    "orch_stop_opts_init": (None, [POINTER(orch_stop_opts), c_uint32]),
    "orch_scope_stop": (c_int32, [c_void_p, POINTER(orch_stop_opts), orch_death_fn, c_void_p, orch_destroy_fn,
                        POINTER(c_void_p)]),
    "orch_scope_stop_wait": (c_int32, [c_void_p, POINTER(orch_stop_opts), POINTER(c_void_p), POINTER(c_void_p)]),
    "orch_scope_on_death": (c_int32, [c_void_p, orch_death_fn, c_void_p, orch_destroy_fn, POINTER(c_void_p)]),
    "orch_scope_add_work": (c_int32, [c_void_p, c_char_p, orch_settle_fn, c_void_p, orch_destroy_fn,
                            POINTER(c_void_p)]),
    "orch_settlement_ref": (c_void_p, [c_void_p]),
    "orch_settlement_unref": (c_void_p, [c_void_p]),
    "orch_settlement_done": (c_int32, [c_void_p, c_char_p, POINTER(c_void_p)]),
    "orch_death_ref": (c_void_p, [c_void_p]),
    "orch_death_unref": (c_void_p, [c_void_p]),
    "orch_death_verdict": (c_uint32, [c_void_p]),
    "orch_death_verdict_name": (c_char_p, [c_void_p]),
    "orch_death_mechanism": (c_char_p, [c_void_p]),
    "orch_death_proof": (c_char_p, [c_void_p]),
    "orch_death_reason": (c_char_p, [c_void_p]),
    "orch_death_limit": (c_uint32, [c_void_p]),
    "orch_death_scope": (c_char_p, [c_void_p]),
    "orch_death_pidns_inode": (c_uint64, [c_void_p]),
    "orch_death_boot_id": (c_char_p, [c_void_p]),
    "orch_death_init": (c_int32, [c_void_p, POINTER(c_int32), POINTER(c_uint64), POINTER(c_uint64)]),
    "orch_death_alive_at_request": (c_uint32, [c_void_p]),
    "orch_death_requested_at_ms": (c_int64, [c_void_p]),
    "orch_death_last_death_us": (c_int64, [c_void_p]),
    "orch_death_confirmed_us": (c_int64, [c_void_p]),
    "orch_death_survivor_count": (c_uint32, [c_void_p]),
    "orch_death_survivor": (c_int32, [c_void_p, c_uint32, POINTER(c_int32), POINTER(c_uint64), POINTER(c_char_p),
                            POINTER(c_char_p)]),
    "orch_death_work_count": (c_uint32, [c_void_p]),
    "orch_death_work": (c_int32, [c_void_p, c_uint32, POINTER(c_char_p), POINTER(c_uint32), POINTER(c_char_p)]),
    "orch_death_text": (c_char_p, [c_void_p]),
    "orch_broker_opts_init": (None, [POINTER(orch_broker_opts), c_uint32]),
    "orch_broker_new": (c_int32, [c_void_p, POINTER(orch_broker_opts), POINTER(c_void_p), POINTER(c_void_p)]),
    "orch_broker_ref": (c_void_p, [c_void_p]),
    "orch_broker_unref": (c_void_p, [c_void_p]),
    "orch_upstream_opts_init": (None, [POINTER(orch_upstream_opts), c_uint32]),
    "orch_broker_set_upstream": (c_int32, [c_void_p, c_char_p, POINTER(orch_upstream_opts), POINTER(c_void_p)]),
    "orch_broker_set_budget": (c_int32, [c_void_p, c_uint64, c_uint64, c_uint64, POINTER(c_void_p)]),
    "orch_broker_add_spent": (c_int32, [c_void_p, c_uint64, c_uint64, c_uint64, POINTER(c_void_p)]),
    "orch_broker_spent": (c_int32, [c_void_p, POINTER(c_uint64), POINTER(c_uint64), POINTER(c_uint64)]),
    "orch_principal_opts_init": (None, [POINTER(orch_principal_opts), c_uint32]),
    "orch_principal_new": (c_int32, [c_void_p, POINTER(orch_principal_opts), POINTER(c_void_p), POINTER(c_void_p)]),
    "orch_principal_ref": (c_void_p, [c_void_p]),
    "orch_principal_unref": (c_void_p, [c_void_p]),
    "orch_grant_opts_init": (None, [POINTER(orch_grant_opts), c_uint32]),
    "orch_principal_grant": (c_int32, [c_void_p, POINTER(orch_grant_opts), POINTER(c_void_p)]),
    "orch_broker_add_listener": (c_int32, [c_void_p, c_int32, c_void_p, POINTER(c_void_p)]),
    "orch_principal_revoke": (c_int32, [c_void_p, orch_revoke_fn, c_void_p, orch_destroy_fn, POINTER(c_void_p)]),
    "orch_principal_attach": (c_int32, [c_void_p, c_void_p, POINTER(c_void_p)]),
    "orch_principal_spent": (c_int32, [c_void_p, POINTER(c_uint64), POINTER(c_uint64), POINTER(c_uint64)]),
    "orch_principal_budget_hit": (c_int32, [c_void_p]),
    "orch_broker_on_operation": (c_int32, [c_void_p, orch_operation_fn, c_void_p, orch_destroy_fn,
                                 POINTER(c_void_p)]),
    "orch_broker_probe": (None, [c_void_p, c_void_p, c_void_p]),
    "orch_sandbox_opts_init": (None, [POINTER(orch_sandbox_opts), c_uint32]),
    "orch_sandbox_new": (c_int32, [c_void_p, POINTER(orch_sandbox_opts), POINTER(c_void_p), POINTER(c_void_p)]),
    "orch_sandbox_ref": (c_void_p, [c_void_p]),
    "orch_sandbox_unref": (c_void_p, [c_void_p]),
    "orch_sandbox_add_path": (c_int32, [c_void_p, c_char_p, c_char_p, c_uint32, POINTER(c_void_p)]),
    "orch_sandbox_deny_path": (c_int32, [c_void_p, c_char_p, POINTER(c_void_p)]),
    "orch_sandbox_set_workspace": (c_int32, [c_void_p, c_char_p, c_char_p, POINTER(c_void_p)]),
    "orch_sandbox_set_overlay": (c_int32, [c_void_p, c_char_p, c_char_p, POINTER(c_void_p)]),
    "orch_sandbox_read_policy": (c_int32, [c_void_p, c_void_p, c_size_t, c_char_p, POINTER(c_void_p)]),
    "orch_sandbox_load_policy": (c_int32, [c_void_p, c_char_p, POINTER(c_void_p)]),
    "orch_sandbox_set_env": (c_int32, [c_void_p, c_char_p, c_char_p, POINTER(c_void_p)]),
    "orch_sandbox_set_protection": (c_int32, [c_void_p, c_char_p, c_uint32, POINTER(c_void_p)]),
    "orch_sandbox_start": (c_int32, [c_void_p, orch_sandbox_start_fn, c_void_p, orch_destroy_fn, POINTER(c_void_p)]),
    "orch_sandbox_start_wait": (c_int32, [c_void_p, c_int64, POINTER(c_void_p)]),
    "orch_sandbox_why": (c_int32, [c_void_p, c_char_p, c_uint32, POINTER(c_void_p), POINTER(c_void_p)]),
    "orch_sandbox_answer_unref": (c_void_p, [c_void_p]),
    "orch_sandbox_answer_denied": (c_uint32, [c_void_p]),
    "orch_sandbox_answer_rule": (c_char_p, [c_void_p]),
    "orch_sandbox_answer_text": (c_char_p, [c_void_p]),
    "orch_sandbox_scope": (c_void_p, [c_void_p]),
    "orch_sandbox_host_uid": (c_uint32, [c_void_p]),
    "orch_sandbox_listener_fd": (c_int32, [c_void_p]),
    "orch_sandbox_connect": (c_int32, [c_void_p, c_uint16, orch_sandbox_connect_fn, c_void_p, orch_destroy_fn,
                             POINTER(c_void_p)]),
    "orch_sandbox_spawn": (c_int32, [c_void_p, POINTER(orch_proc_opts), POINTER(c_void_p), POINTER(c_void_p)]),
    "orch_run_opts_init": (None, [POINTER(orch_run_opts), c_uint32]),
    "orch_sandbox_run": (c_int32, [c_void_p, POINTER(c_char_p), POINTER(orch_run_opts), POINTER(c_void_p),
                         POINTER(c_void_p)]),
    "orch_sandbox_result_unref": (c_void_p, [c_void_p]),
    "orch_sandbox_result_status": (c_int32, [c_void_p]),
    "orch_sandbox_result_output": (c_void_p, [c_void_p, c_int32, POINTER(c_size_t)]),
    "orch_sandbox_result_truncated": (c_int32, [c_void_p, c_int32]),
    "orch_sandbox_result_reason": (c_uint32, [c_void_p]),
    "orch_sandbox_result_death": (c_void_p, [c_void_p]),
    "orch_sandbox_changes": (c_int32, [c_void_p, POINTER(c_void_p), POINTER(c_void_p)]),
    "orch_changes_unref": (c_void_p, [c_void_p]),
    "orch_changes_count": (c_uint32, [c_void_p]),
    "orch_changes_row": (c_int32, [c_void_p, c_uint32, POINTER(c_char_p), POINTER(c_uint32), POINTER(c_uint32),
                         POINTER(c_uint64)]),
    "orch_changes_text": (c_char_p, [c_void_p]),
    "orch_changes_export": (c_int32, [c_void_p, c_char_p, POINTER(c_void_p)]),
    "orch_sandbox_pool_new": (c_int32, [c_void_p, c_uint32, POINTER(c_void_p), POINTER(c_void_p)]),
    "orch_sandbox_pool_ref": (c_void_p, [c_void_p]),
    "orch_sandbox_pool_unref": (c_void_p, [c_void_p]),
    "orch_sandbox_pool_take": (c_int32, [c_void_p, POINTER(c_void_p), POINTER(c_void_p)]),
    "orch_sandbox_pool_take_wait": (c_int32, [c_void_p, c_int64, POINTER(c_void_p), POINTER(c_void_p)]),
    "orch_sandbox_pool_ready": (c_uint32, [c_void_p]),
    "orch_sandbox_report_run": (c_int32, [c_void_p, POINTER(orch_sandbox_opts), c_int64, POINTER(c_void_p),
                                POINTER(c_void_p)]),
    "orch_sandbox_report_unref": (c_void_p, [c_void_p]),
    "orch_sandbox_report_count": (c_uint32, [c_void_p]),
    "orch_sandbox_report_row": (c_int32, [c_void_p, c_uint32, POINTER(c_char_p), POINTER(c_uint32),
                                POINTER(c_char_p), POINTER(c_uint32), POINTER(c_uint32), POINTER(c_char_p)]),
    "orch_sandbox_report_remedy": (c_char_p, [c_void_p, c_uint32]),
    "orch_sandbox_report_text": (c_char_p, [c_void_p]),
    "orch_executor_opts_init": (None, [POINTER(orch_executor_opts), c_uint32]),
    "orch_executor_new": (c_int32, [c_void_p, POINTER(orch_executor_opts), POINTER(c_void_p), POINTER(c_void_p)]),
    "orch_executor_ref": (c_void_p, [c_void_p]),
    "orch_executor_unref": (c_void_p, [c_void_p]),
    "orch_executor_kind": (c_uint32, [c_void_p]),
    "orch_executor_kind_name": (c_char_p, [c_uint32]),
    "orch_executor_operation": (c_char_p, [c_void_p]),
    "orch_executor_prepare": (c_int32, [c_void_p, c_void_p, POINTER(c_void_p)]),
    "orch_job_opts_init": (None, [POINTER(orch_job_opts), c_uint32]),
    "orch_executor_run": (c_int32, [c_void_p, c_void_p, POINTER(orch_job_opts), POINTER(c_void_p),
                          POINTER(c_void_p)]),
    "orch_job_ref": (c_void_p, [c_void_p]),
    "orch_job_unref": (c_void_p, [c_void_p]),
    "orch_job_packet": (c_char_p, [c_void_p]),
    "orch_job_sandbox": (c_void_p, [c_void_p]),
    "orch_job_workspace": (c_char_p, [c_void_p]),
    "orch_job_finish": (c_int32, [c_void_p, c_int32, c_char_p, POINTER(c_void_p)]),
    "orch_job_claimed_tokens": (c_uint64, [c_void_p]),
    "orch_permit_opts_init": (None, [POINTER(orch_permit_opts), c_uint32]),
    "orch_permit_issue": (c_int32, [c_void_p, POINTER(orch_permit_opts), POINTER(c_void_p), POINTER(c_void_p)]),
    "orch_permit_revoke": (c_int32, [c_void_p, c_char_p, POINTER(c_void_p)]),
    "orch_permit_find": (c_int32, [c_void_p, c_char_p, POINTER(c_void_p), POINTER(c_void_p)]),
    "orch_permit_each": (c_int32, [c_void_p, orch_permit_fn, c_void_p, POINTER(c_void_p)]),
    "orch_permit_ref": (c_void_p, [c_void_p]),
    "orch_permit_unref": (c_void_p, [c_void_p]),
    "orch_permit_id": (c_uint64, [c_void_p]),
    "orch_permit_name": (c_char_p, [c_void_p]),
    "orch_permit_kind": (c_char_p, [c_void_p]),
    "orch_permit_state": (c_uint32, [c_void_p]),
    "orch_permit_state_name": (c_char_p, [c_uint32]),
    "orch_permit_expires_at_ms": (c_int64, [c_void_p]),
    "orch_permit_epoch": (c_uint64, [c_void_p]),
    "orch_permit_action": (c_uint64, [c_void_p]),
    "orch_permit_note": (c_void_p, [c_void_p, POINTER(c_size_t)]),
    "orch_pipeline_opts_init": (None, [POINTER(orch_pipeline_opts), c_uint32]),
    "orch_pipeline_new": (c_int32, [c_void_p, POINTER(orch_pipeline_opts), POINTER(c_void_p), POINTER(c_void_p)]),
    "orch_pipeline_ref": (c_void_p, [c_void_p]),
    "orch_pipeline_unref": (c_void_p, [c_void_p]),
    "orch_pipeline_broker": (c_void_p, [c_void_p]),
    "orch_pipeline_journal": (c_void_p, [c_void_p]),
    "orch_pipeline_set_executor": (c_int32, [c_void_p, c_uint32, c_void_p, POINTER(c_void_p)]),
    "orch_pipeline_allow": (c_int32, [c_void_p, POINTER(orch_grant_opts), POINTER(c_void_p)]),
    "orch_pipeline_on_event": (c_int32, [c_void_p, orch_pipeline_event_fn, c_void_p, orch_destroy_fn,
                               POINTER(c_void_p)]),
    "orch_pipeline_start": (c_int32, [c_void_p, POINTER(c_void_p)]),
    "orch_pipeline_run": (c_int32, [c_void_p, c_int64, POINTER(c_uint32), POINTER(c_void_p)]),
    "orch_pipeline_answer": (c_int32, [c_void_p, c_char_p, c_size_t, POINTER(c_void_p)]),
    "orch_pipeline_accept_recommended": (c_int32, [c_void_p, POINTER(c_void_p)]),
    "orch_pipeline_stop": (c_int32, [c_void_p, c_char_p, POINTER(c_void_p)]),
    "orch_pipeline_state": (c_uint32, [c_void_p]),
    "orch_pipeline_overlays": (c_uint32, [c_void_p]),
    "orch_run_state_name": (c_char_p, [c_uint32]),
    "orch_pipeline_status": (c_int32, [c_void_p, POINTER(c_void_p), POINTER(c_void_p)]),
    "orch_pipeline_status_of": (c_int32, [c_char_p, POINTER(c_void_p), POINTER(c_void_p)]),
    "orch_string_free": (c_void_p, [c_void_p]),
    "orch_pipeline_report_path": (c_char_p, [c_void_p]),
    "orch_pipeline_product_path": (c_char_p, [c_void_p]),
    "orch_reaper_record": (c_int32, [c_void_p, c_char_p, POINTER(c_void_p)]),
    "orch_reaper_recover_opts_init": (None, [POINTER(orch_reaper_recover_opts), c_uint32]),
    "orch_reaper_recover": (c_int32, [POINTER(orch_reaper_recover_opts), POINTER(c_void_p), POINTER(c_void_p)]),
    "orch_leftovers_unref": (c_void_p, [c_void_p]),
    "orch_leftovers_count": (c_uint32, [c_void_p]),
    "orch_leftovers_death": (c_int32, [c_void_p, c_uint32, POINTER(c_void_p)]),
    "orch_timer_opts_init": (None, [POINTER(orch_timer_opts), c_uint32]),
    "orch_timer_set": (c_int32, [c_void_p, POINTER(orch_timer_opts), POINTER(c_void_p), POINTER(c_void_p)]),
    "orch_timer_done": (c_int32, [c_void_p, POINTER(c_void_p)]),
    "orch_timer_cancel": (c_int32, [c_void_p, POINTER(c_void_p)]),
    "orch_timer_find": (c_int32, [c_void_p, c_char_p, POINTER(c_void_p), POINTER(c_void_p)]),
    "orch_timer_each": (c_int32, [c_void_p, orch_timer_each_fn, c_void_p, POINTER(c_void_p)]),
    "orch_timer_next": (c_int32, [c_void_p, POINTER(c_void_p), POINTER(c_int64), POINTER(c_void_p)]),
    "orch_timer_watch_new": (c_int32, [c_void_p, c_void_p, orch_timer_due_fn, c_void_p, orch_destroy_fn,
                             POINTER(c_void_p), POINTER(c_void_p)]),
    "orch_timer_watch_unref": (c_void_p, [c_void_p]),
    "orch_timer_ref": (c_void_p, [c_void_p]),
    "orch_timer_unref": (c_void_p, [c_void_p]),
    "orch_timer_id": (c_uint64, [c_void_p]),
    "orch_timer_name": (c_char_p, [c_void_p]),
    "orch_timer_state": (c_uint32, [c_void_p]),
    "orch_timer_state_name": (c_char_p, [c_uint32]),
    "orch_timer_round": (c_uint32, [c_void_p]),
    "orch_timer_due_at_ms": (c_int64, [c_void_p]),
    "orch_timer_delay_ms": (c_int64, [c_void_p]),
    "orch_timer_payload": (c_void_p, [c_void_p, POINTER(c_size_t)]),
}
