// SPDX-License-Identifier: Apache-2.0
import COrch

/// Keeps sandboxes started, each a copy of a pattern, so that a program waits for no set-up. When the last reference is
/// dropped, those that nobody took end.
public actor SandboxPool {
    private nonisolated let handle: Handle

    public nonisolated var unownedExecutor: UnownedSerialExecutor {
        handle.executor.asUnownedSerialExecutor()
    }

    /// `ready` copies of `pattern` as it is now; it is not started. `ORCH_EINVAL`: `ready` is 0 or above 256, or a path
    /// is ``PathAccess/own`` (a folder has one owner; an overlay is fine); `ORCH_ESTATE`: the pattern was started.
    public init(of pattern: Sandbox, ready: UInt32) async throws(OrchError) {
        handle = try await pattern.makePool(ready)
    }

    /// One that stands; another one is started in the background. `ORCH_ETIMEDOUT`; `ORCH_ECANCELED`: the task was
    /// cancelled; or the error of the last start, if that failed: the pool tries again at the next call.
    public func take(timeoutMs: Int64 = 20_000) async throws(OrchError) -> Sandbox {
        let clock = ContinuousClock()
        let end = clock.now + .milliseconds(timeoutMs)
        if Task.isCancelled { throw cancelled }
        do {
            // Forgets the failure of an earlier start: who waits is told how it goes now.
            return try taken { orch_sandbox_pool_take_wait(handle.pointer, 0, $0, $1) }
        } catch where error.code == .etimedout && error.step.isEmpty {}
        while true {
            if let sandbox = try takeReady() { return sandbox }
            if clock.now >= end { throw OrchError(.etimedout, "no sandbox was ready in \(timeoutMs) ms") }
            // Nothing announces one, and the thread is needed to start it.
            do { try await Task.sleep(for: .milliseconds(1)) } catch { throw cancelled }
        }
    }

    /// One that is ready now, or nil. Errors as of ``take(timeoutMs:)``.
    public func takeReady() throws(OrchError) -> Sandbox? {
        do {
            return try taken { orch_sandbox_pool_take(handle.pointer, $0, $1) }
        } catch where error.code == .ebusy {
            return nil
        }
    }

    /// How many are ready now.
    public var ready: UInt32 { orch_sandbox_pool_ready(handle.pointer) }

    private var cancelled: OrchError {
        OrchError(.ecanceled, "the task that waited for a sandbox was cancelled")
    }

    private func taken(
        _ call: (UnsafeMutablePointer<OpaquePointer?>, UnsafeMutablePointer<OpaquePointer?>) -> Int32
    ) throws(OrchError) -> Sandbox {
        Sandbox(standing: try made(handle.executor, orch_sandbox_unref, call)!, borrowed: false)
    }
}

extension Sandbox {
    fileprivate func makePool(_ ready: UInt32) throws(OrchError) -> Handle {
        try made(handle.executor, orch_sandbox_pool_unref) {
            orch_sandbox_pool_new(handle.pointer, ready, $0, $1)
        }!
    }
}
