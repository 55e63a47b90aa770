// SPDX-License-Identifier: Apache-2.0
import COrch

public struct ActionState: OrchConstant, CustomStringConvertible {
    public let rawValue: UInt32
    public init(rawValue: UInt32) { self.rawValue = rawValue }

    public static let intent = Self(ORCH_ACTION_INTENT)
    public static let dispatched = Self(ORCH_ACTION_DISPATCHED)
    public static let observed = Self(ORCH_ACTION_OBSERVED)
    public static let confirmed = Self(ORCH_ACTION_CONFIRMED)
    /// Known not to have happened.
    public static let failed = Self(ORCH_ACTION_FAILED)
    /// Nobody can tell: no blind retry.
    public static let unknown = Self(ORCH_ACTION_UNKNOWN)
    /// A person decides.
    public static let handedOver = Self(ORCH_ACTION_HANDED_OVER)
    public static let abandoned = Self(ORCH_ACTION_ABANDONED)

    /// "INTENT", "DISPATCHED", ...
    public var description: String { string(orch_action_state_name(rawValue)) }
}

public struct Policy: OrchConstant {
    public let rawValue: UInt32
    public init(rawValue: UInt32) { self.rawValue = rawValue }

    /// May be done again without asking.
    public static let repeatable = Self(ORCH_POLICY_REPEATABLE)
    /// May be done again only if a probe says that it was not applied.
    public static let probeFirst = Self(ORCH_POLICY_PROBE_FIRST)
    /// As `probeFirst`, and an unknown outcome goes to a person, never to a retry.
    public static let neverRepeat = Self(ORCH_POLICY_NEVER_REPEAT)
}

/// What became of an action outside.
public struct Outcome: OrchConstant {
    public let rawValue: UInt32
    public init(rawValue: UInt32) { self.rawValue = rawValue }

    public static let applied = Self(ORCH_OUTCOME_APPLIED)
    public static let notApplied = Self(ORCH_OUTCOME_NOT_APPLIED)
    public static let inFlight = Self(ORCH_OUTCOME_IN_FLIGHT)
    public static let unknown = Self(ORCH_OUTCOME_UNKNOWN)
}

/// What a person found out about an action.
public struct Decision: OrchConstant {
    public let rawValue: UInt32
    public init(rawValue: UInt32) { self.rawValue = rawValue }

    /// It happened: observed, then confirmed, with the note as result.
    public static let applied = Self(ORCH_DECISION_APPLIED)
    /// It did not happen, and may be begun again.
    public static let notApplied = Self(ORCH_DECISION_NOT_APPLIED)
    /// Nobody will find out, and it is not wanted any more.
    public static let abandon = Self(ORCH_DECISION_ABANDON)
}

/// What a person decided about an action.
public struct Decided: Hashable, Sendable {
    public let decision: Decision
    public let by: String
    /// In ms since 1970.
    public let atMs: Int64

    fileprivate init?(about action: OpaquePointer) {
        var by: UnsafePointer<CChar>?
        var atMs: Int64 = 0
        let made = orch_action_decision(action, &by, &atMs)
        if made == 0 { return nil }
        decision = Decision(made)
        self.by = string(by)
        self.atMs = atMs
    }
}

/// All of an action at one moment. A copy.
public struct ActionRecord: Hashable, Sendable {
    public let id: UInt64
    public let kind: String
    public let key: String
    public let state: ActionState
    public let policy: Policy
    /// 1 for the first.
    public let attempt: UInt32
    public let generation: UInt64
    public let createdAtMs: Int64
    public let updatedAtMs: Int64
    /// nil: there is none.
    public let request: [UInt8]?
    /// The result, or the reason of a side state.
    public let result: [UInt8]?
    /// ``Journal/prune(closedBeforeMs:)`` dropped its payloads: they read "sha256:HEX bytes:N".
    public let pruned: Bool
    /// The last one of a person; nil: there is none.
    public let decided: Decided?

    init(copying action: OpaquePointer) {
        id = orch_action_id(action)
        kind = string(orch_action_kind(action))
        key = string(orch_action_key(action))
        state = ActionState(orch_action_state(action))
        policy = Policy(orch_action_policy(action))
        attempt = orch_action_attempt(action)
        generation = orch_action_generation(action)
        createdAtMs = orch_action_created_at_ms(action)
        updatedAtMs = orch_action_updated_at_ms(action)
        var length = 0
        request = orch_action_request(action, &length).map { bytes($0, length) }
        result = orch_action_result(action, &length).map { bytes($0, length) }
        pruned = orch_action_pruned(action) != 0
        decided = Decided(about: action)
    }
}

/// One action of a ``Journal``. Each transition is durable when it returns; those that are asked for at the
/// same time share a commit, and none holds a thread. When another one was first, `ORCH_ESTATE` is thrown and
/// nothing changes: look the action up again. `ORCH_EBUSY`: one of this very object is under way.
public actor Action {
    nonisolated let handle: Handle
    public nonisolated let kind: String
    public nonisolated let key: String

    public nonisolated var unownedExecutor: UnownedSerialExecutor {
        handle.executor.asUnownedSerialExecutor()
    }

    init(_ handle: Handle) {
        self.handle = handle
        kind = string(orch_action_kind(handle.pointer))
        key = string(orch_action_key(handle.pointer))
    }

    /// What this handle knows.
    public var record: ActionRecord { ActionRecord(copying: handle.pointer) }
    public var state: ActionState { ActionState(orch_action_state(handle.pointer)) }

    /// From `intent`: before the effect.
    public func dispatch() async throws(OrchError) { try await move(to: .dispatched) }

    /// From `dispatched`, `unknown` (a late answer), `handedOver` (a person found out).
    public func observe(_ result: [UInt8] = []) async throws(OrchError) {
        try await move(to: .observed, result)
    }

    /// From `observed`.
    public func confirm() async throws(OrchError) { try await move(to: .confirmed) }

    /// Known not to have happened: a later begin is fresh again.
    public func fail(_ reason: [UInt8] = []) async throws(OrchError) { try await move(to: .failed, reason) }

    /// From `dispatched`: nobody can tell.
    public func unknown(_ reason: [UInt8] = []) async throws(OrchError) {
        try await move(to: .unknown, reason)
    }

    /// To a person.
    public func handOver(_ reason: [UInt8] = []) async throws(OrchError) {
        try await move(to: .handedOver, reason)
    }

    public func abandon(_ reason: [UInt8] = []) async throws(OrchError) {
        try await move(to: .abandoned, reason)
    }

    /// What a person found out about an action in `handedOver` or `unknown`. Who it was and the note stay in
    /// the journal, in the same commit; the note becomes the result. It waits for the disk.
    public func decide(_ decision: Decision, by person: String, note: [UInt8] = []) throws(OrchError) {
        try withCMemory { memory throws(OrchError) in
            let person = try memory.string(person)
            let start = memory.bytes(note)
            try check { orch_action_decide(handle.pointer, decision.rawValue, person, start, note.count, $0) }
        }
    }

    /// Applies what a probe of your own found to an action in `dispatched` or `unknown`, by the table of
    /// orch_journal_recover(3). For probes that wait for the network: do that first, then call this.
    public func resolve(_ answer: ProbeAnswer) throws(OrchError) {
        let result = answer.result
        try withCMemory { memory throws(OrchError) in
            let start = memory.bytes(result)
            try check {
                orch_action_resolve(handle.pointer, answer.outcome.rawValue, start, result.count, $0)
            }
        }
    }

    private func move(to state: ActionState, _ payload: [UInt8] = []) async throws(OrchError) {
        let promise = Promise<Void>()
        try withCMemory { memory throws(OrchError) in
            let start = memory.bytes(payload)
            try check {
                orch_action_move_async(
                    handle.pointer, handle.executor.loop.ctx, state.rawValue, start, payload.count, onMove,
                    Callback.retained(JournalReceiver(promise, handle.executor)), releaseCallback, $0)
            }
        }
        try await promise.value()
    }
}

private func onMove(_ userdata: UnsafeMutableRawPointer?, _ action: OpaquePointer?, _ error: OpaquePointer?) {
    Callback<JournalReceiver<Void>>.body(userdata).settle(error) { _ in () }
}
