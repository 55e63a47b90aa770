// SPDX-License-Identifier: Apache-2.0
import COrch

/// What a probe found out about an action.
public enum ProbeAnswer: Hashable, Sendable {
    /// It happened; the result is recorded as the observation.
    case applied(result: [UInt8] = [])
    case notApplied
    case inFlight
    case unknown

    var outcome: Outcome {
        switch self {
        case .applied: .applied
        case .notApplied: .notApplied
        case .inFlight: .inFlight
        case .unknown: .unknown
        }
    }

    var result: [UInt8] {
        if case .applied(let result) = self { result } else { [] }
    }
}

/// What a recovery found and decided.
public struct Recovery: Sendable, CustomStringConvertible {
    public struct Row: Sendable {
        /// Its state is the one after.
        public let action: Action
        public let stateBefore: ActionState
        /// nil: it was not probed.
        public let probe: Outcome?
        /// In words.
        public let decision: String
    }

    public let rows: [Row]
    /// For people.
    public let text: String
    /// What probe functions threw: those actions count as unknown.
    public let probeErrors: [any Error]

    public var description: String { text }

    fileprivate init(copying recovery: OpaquePointer, _ executor: OrchExecutor, _ probeErrors: [any Error]) {
        rows = (0..<orch_recovery_count(recovery)).map { index in
            var action: OpaquePointer?
            var decision: UnsafePointer<CChar>?
            var before: UInt32 = 0
            var probe: UInt32 = 0
            orch_recovery_row(recovery, index, &action, &before, &probe, &decision)
            return Row(
                action: Action(Handle(orch_action_ref(action), executor, orch_action_unref)),
                stateBefore: ActionState(before), probe: probe == 0 ? nil : Outcome(probe),
                decision: string(decision))
        }
        text = string(orch_recovery_text(recovery))
        self.probeErrors = probeErrors
    }
}

extension Journal {
    /// After a restart: probes each action that an earlier generation left open, then decides, by the table
    /// of orch_journal_recover(3). It can be killed at any point and run again.
    /// - Parameters:
    ///   - kindPrefix: only actions of such a kind.
    ///   - probe: asks the outside what became of the action, at once, on the journal's thread; it must not
    ///     wait for anything of the journal. Throwing is the answer `unknown`. nil: every answer is
    ///     `unknown`.
    @discardableResult
    public func recover(
        _ kindPrefix: String? = nil, probe: (@Sendable (ActionRecord) throws -> ProbeAnswer)? = nil
    ) throws(OrchError) -> Recovery {
        guard let probe else { return try recover(kindPrefix, nil, nil) { [] } }
        let asker = Asker(probe)
        let userdata = Unmanaged.passUnretained(asker).toOpaque()
        return try recover(kindPrefix, ask, userdata) { withExtendedLifetime(asker) { asker.errors } }
    }

    /// The same for the actions of a broker, whose destinations it asks by the recorded probe URL.
    @discardableResult
    public func recover(_ kindPrefix: String? = nil, asking broker: Broker) throws(OrchError) -> Recovery {
        try handle.requireSameContext(as: broker.handle, "the broker")
        return try withExtendedLifetime(broker) { () throws(OrchError) in
            try recover(kindPrefix, orch_broker_probe, UnsafeMutableRawPointer(broker.handle.pointer)) { [] }
        }
    }

    private func recover(
        _ kindPrefix: String?, _ probe: orch_probe_fn?, _ userdata: UnsafeMutableRawPointer?,
        _ probeErrors: () -> [any Error]
    ) throws(OrchError) -> Recovery {
        try withCMemory { memory throws(OrchError) in
            let prefix = try memory.string(kindPrefix)
            var recovery: OpaquePointer?
            try check { orch_journal_recover(handle.pointer, prefix, probe, userdata, &recovery, $0) }
            defer { orch_recovery_unref(recovery) }
            return Recovery(copying: recovery!, handle.executor, probeErrors())
        }
    }
}

private final class Asker {
    let probe: @Sendable (ActionRecord) throws -> ProbeAnswer
    var errors: [any Error] = []

    init(_ probe: @escaping @Sendable (ActionRecord) throws -> ProbeAnswer) { self.probe = probe }
}

private func ask(_ userdata: UnsafeMutableRawPointer?, _ action: OpaquePointer?, _ reply: OpaquePointer?) {
    let asker = Unmanaged<Asker>.fromOpaque(userdata!).takeUnretainedValue()
    var answer = ProbeAnswer.unknown
    do { answer = try asker.probe(ActionRecord(copying: action!)) } catch { asker.errors.append(error) }
    let result = answer.result
    _ = result.withUnsafeBytes {
        orch_probe_reply_answer(reply, answer.outcome.rawValue, $0.baseAddress, $0.count)
    }
}
