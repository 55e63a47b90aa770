// SPDX-License-Identifier: Apache-2.0
import COrch

extension Context {
    /// From now on each new scope is written down in the file `path` before anything of it is started, then its end:
    /// ``recoverScopes(in:deadlineMs:)`` reads it. `ORCH_ELOCKED`: a live host records in it; `ORCH_ECORRUPT`;
    /// `ORCH_ESTATE`: this context records already.
    public func recordScopes(in path: String) throws(OrchError) {
        try withCMemory { memory throws(OrchError) in
            let path = try memory.string(path)
            try check { orch_reaper_record(executor.loop.ctx, path, $0) }
        }
    }
}

/// Kills what a host left that recorded its scopes in `path` and was killed, and gives the certificate of each scope that
/// had no end: after another boot, or with the proof that its processes are dead. A scope that is not dead is told again
/// the next time.
///
/// It holds the thread until all are proved or `deadlineMs` (0: 10000) is over: call it before anything else.
/// `ORCH_ENOENT`: there is no record; `ORCH_ELOCKED`: the host lives; `ORCH_ECORRUPT`.
public func recoverScopes(in path: String, deadlineMs: UInt32 = 0) throws(OrchError) -> [Death] {
    var leftovers: OpaquePointer?
    try withCMemory { memory throws(OrchError) in
        var opts = orch_reaper_recover_opts()
        orch_reaper_recover_opts_init(&opts, sizeOf(orch_reaper_recover_opts.self))
        opts.path = try memory.string(path)
        opts.deadline_ms = deadlineMs
        try check { orch_reaper_recover(&opts, &leftovers, $0) }
    }
    defer { _ = orch_leftovers_unref(leftovers) }
    return (0..<orch_leftovers_count(leftovers)).compactMap { index in
        var death: OpaquePointer?
        guard orch_leftovers_death(leftovers, index, &death) == 0, let death else { return nil }
        defer { _ = orch_death_unref(death) }
        return Death(copying: death)
    }
}
