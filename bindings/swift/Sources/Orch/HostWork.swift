// SPDX-License-Identifier: Apache-2.0
import COrch

/// Work on the host that ended with a scope: see ``Scope/addWork(_:settle:)``.
public struct HostWork: Hashable, Sendable {
    public let what: String
    /// How it ended; nil: it did not settle.
    public let outcome: String?
}

extension Scope {
    /// Registers work that the host does for the scope, so that its end is part of the scope's: when the end begins,
    /// asked for or not, `settle` is called once. It ends the work and says in words how; nil: it did not settle, and
    /// then the certificate is not ``Verdict/dead``. The certificate waits for it, until the deadline.
    ///
    /// `ORCH_ECLOSED`: the scope's end has begun; `ORCH_EBUSY`: 64 are registered.
    public func addWork(
        _ what: String, settle: @escaping @Sendable () async -> String?
    ) throws(OrchError) {
        let receiver = WorkReceiver(handle.executor, settle)
        try withCMemory { memory throws(OrchError) in
            let what = try memory.string(what)
            try check {
                orch_scope_add_work(handle.pointer, what, onSettle, Callback.retained(receiver), releaseCallback, $0)
            }
        }
    }
}

private final class WorkReceiver: Sendable {
    let executor: OrchExecutor
    let settle: @Sendable () async -> String?

    init(_ executor: OrchExecutor, _ settle: @escaping @Sendable () async -> String?) {
        self.executor = executor
        self.settle = settle
    }
}

/// Answers in the context's own thread.
private actor Settlement {
    private nonisolated let handle: Handle

    nonisolated var unownedExecutor: UnownedSerialExecutor { handle.executor.asUnownedSerialExecutor() }

    init(_ handle: Handle) { self.handle = handle }

    /// Too late is no error of the work's.
    func done(_ outcome: String) {
        orch_settlement_done(handle.pointer, outcome, nil)
    }
}

private func onSettle(
    _ userdata: UnsafeMutableRawPointer?, _ scope: OpaquePointer?, _ settlement: OpaquePointer?
) {
    guard let settlement else { return }
    let receiver = Callback<WorkReceiver>.body(userdata)
    let reply = Settlement(Handle(orch_settlement_ref(settlement), receiver.executor, orch_settlement_unref))
    let settle = receiver.settle
    Task {
        if let outcome = await settle() { await reply.done(outcome) }
    }
}
