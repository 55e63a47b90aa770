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
    public let updatedAtMs: Int64
    /// nil: there is none.
    public let request: [UInt8]?
    /// The result, or the reason of a side state.
    public let result: [UInt8]?

    init(copying action: OpaquePointer) {
        id = orch_action_id(action)
        kind = string(orch_action_kind(action))
        key = string(orch_action_key(action))
        state = ActionState(orch_action_state(action))
        policy = Policy(orch_action_policy(action))
        attempt = orch_action_attempt(action)
        generation = orch_action_generation(action)
        updatedAtMs = orch_action_updated_at_ms(action)
        var length = 0
        request = orch_action_request(action, &length).map { bytes($0, length) }
        result = orch_action_result(action, &length).map { bytes($0, length) }
    }
}

/// One action of a ``Journal``. Each transition is one durable commit; when another one was first,
/// `ORCH_ESTATE` is thrown and nothing changes: look the action up again.
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
    public func dispatch() throws(OrchError) { try check { orch_action_dispatch(handle.pointer, $0) } }

    /// From `dispatched`, `unknown` (a late answer), `handedOver` (a person found out).
    public func observe(_ result: [UInt8] = []) throws(OrchError) { try move(orch_action_observe, result) }

    /// From `observed`.
    public func confirm() throws(OrchError) { try check { orch_action_confirm(handle.pointer, $0) } }

    /// Known not to have happened: a later begin is fresh again.
    public func fail(_ reason: [UInt8] = []) throws(OrchError) { try move(orch_action_fail, reason) }

    /// From `dispatched`: nobody can tell.
    public func unknown(_ reason: [UInt8] = []) throws(OrchError) { try move(orch_action_unknown, reason) }

    /// To a person.
    public func handOver(_ reason: [UInt8] = []) throws(OrchError) { try move(orch_action_hand_over, reason) }

    public func abandon(_ reason: [UInt8] = []) throws(OrchError) { try move(orch_action_abandon, reason) }

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

    private func move(
        _ transition: (OpaquePointer, UnsafeRawPointer?, Int, UnsafeMutablePointer<OpaquePointer?>) -> Int32,
        _ payload: [UInt8]
    ) throws(OrchError) {
        try withCMemory { memory throws(OrchError) in
            let start = memory.bytes(payload)
            try check { transition(handle.pointer, start, payload.count, $0) }
        }
    }
}
