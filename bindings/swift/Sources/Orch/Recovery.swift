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

/// What a recovery does with an action.
public struct RecoveryStep: OrchConstant {
    public let rawValue: UInt32
    public init(rawValue: UInt32) { self.rawValue = rawValue }

    /// It happened: observed, confirmed.
    public static let goOn = Self(ORCH_RECOVER_CONTINUE)
    /// Unknown: ask again before any retry.
    public static let verify = Self(ORCH_RECOVER_VERIFY)
    /// Failed: a begin is fresh again.
    public static let retry = Self(ORCH_RECOVER_RETRY)
    /// A person decides.
    public static let handOver = Self(ORCH_RECOVER_HAND_OVER)
    public static let abandon = Self(ORCH_RECOVER_ABANDON)
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
    /// Asks the outside what became of an action.
    public typealias Probe = @Sendable (ActionRecord) throws -> ProbeAnswer
    /// May choose otherwise than is proposed, knowing what the probe found (nil: it was not probed). nil: as
    /// proposed.
    public typealias Decide = @Sendable (ActionRecord, Outcome?, RecoveryStep) -> RecoveryStep?
    /// Tells that an action waits for a person.
    public typealias HandOver = @Sendable (ActionRecord) -> Void

    /// After a restart: probes each action that an earlier generation left open, then decides, by the table
    /// of orch_journal_recover(3). It can be killed at any point and run again. The functions run at once, on
    /// the journal's thread; they must not wait for anything of the journal.
    /// - Parameters:
    ///   - kindPrefix: only actions of such a kind.
    ///   - probe: throwing is the answer `unknown`. nil: every answer is `unknown`.
    ///   - decide: what nobody has evidence for is not taken, and the row says so.
    ///   - handOver: called for each action that waits for a person, at each recovery.
    @discardableResult
    public func recover(
        _ kindPrefix: String? = nil, probe: Probe? = nil, decide: Decide? = nil, handOver: HandOver? = nil
    ) throws(OrchError) -> Recovery {
        let asker = Asker(decide, handOver)
        if let probe {
            asker.ask = { [unowned asker] action, reply in
                var answer = ProbeAnswer.unknown
                do { answer = try probe(ActionRecord(copying: action)) } catch { asker.errors.append(error) }
                let result = answer.result
                _ = result.withUnsafeBytes {
                    orch_probe_reply_answer(reply, answer.outcome.rawValue, $0.baseAddress, $0.count)
                }
            }
        }
        return try recover(kindPrefix, asker)
    }

    /// The same for the actions of a broker, whose destinations it asks by the recorded probe URL.
    @discardableResult
    public func recover(
        _ kindPrefix: String? = nil, asking broker: Broker, decide: Decide? = nil, handOver: HandOver? = nil
    ) throws(OrchError) -> Recovery {
        try handle.requireSameContext(as: broker.handle, "the broker")
        let asker = Asker(decide, handOver)
        asker.ask = { action, reply in
            orch_broker_probe(UnsafeMutableRawPointer(broker.handle.pointer), action, reply)
        }
        return try recover(kindPrefix, asker)
    }

    private func recover(_ kindPrefix: String?, _ asker: Asker) throws(OrchError) -> Recovery {
        try withCMemory { memory throws(OrchError) in
            var opts = orch_recover_opts()
            orch_recover_opts_init(&opts, sizeOf(orch_recover_opts.self))
            opts.kind_prefix = try memory.string(kindPrefix)
            opts.probe = asker.ask == nil ? nil : onProbe
            opts.decide = asker.decide == nil ? nil : onDecide
            opts.hand_over = asker.handOver == nil ? nil : onHandOver
            opts.userdata = Unmanaged.passUnretained(asker).toOpaque()
            var recovery: OpaquePointer?
            try check { orch_journal_recover(handle.pointer, &opts, &recovery, $0) }
            defer { orch_recovery_unref(recovery) }
            return withExtendedLifetime(asker) { Recovery(copying: recovery!, handle.executor, asker.errors) }
        }
    }
}

/// What stands behind the userdata of the three callbacks.
private final class Asker {
    var ask: ((OpaquePointer, OpaquePointer?) -> Void)?
    let decide: Journal.Decide?
    let handOver: Journal.HandOver?
    var errors: [any Error] = []

    init(_ decide: Journal.Decide?, _ handOver: Journal.HandOver?) {
        self.decide = decide
        self.handOver = handOver
    }

    static func of(_ userdata: UnsafeMutableRawPointer?) -> Asker {
        Unmanaged<Asker>.fromOpaque(userdata!).takeUnretainedValue()
    }
}

private func onProbe(
    _ userdata: UnsafeMutableRawPointer?, _ action: OpaquePointer?, _ reply: OpaquePointer?
) {
    Asker.of(userdata).ask?(action!, reply)
}

private func onDecide(
    _ userdata: UnsafeMutableRawPointer?, _ action: OpaquePointer?, _ outcome: UInt32, _ proposed: UInt32
) -> UInt32 {
    let found = outcome == 0 ? nil : Outcome(outcome)
    return Asker.of(userdata).decide?(ActionRecord(copying: action!), found, RecoveryStep(proposed))?.rawValue
        ?? proposed
}

private func onHandOver(_ userdata: UnsafeMutableRawPointer?, _ action: OpaquePointer?) {
    Asker.of(userdata).handOver?(ActionRecord(copying: action!))
}
