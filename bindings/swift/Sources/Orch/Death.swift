// SPDX-License-Identifier: Apache-2.0
import COrch

public struct Verdict: OrchConstant {
    public let rawValue: UInt32
    public init(rawValue: UInt32) { self.rawValue = rawValue }

    /// Every process of the scope is dead and reaped: proved.
    public static let dead = Self(ORCH_DEATH_DEAD)
    /// All dead, zombies left.
    public static let deadUnreaped = Self(ORCH_DEATH_DEAD_UNREAPED)
    /// Named ones live at the deadline.
    public static let survivors = Self(ORCH_DEATH_SURVIVORS)
    /// No proof could be had: see ``Death/reason``.
    public static let unverifiable = Self(ORCH_DEATH_UNVERIFIABLE)
}

/// The certificate of a scope's end: what died, how that was proved, how long it took. A copy.
public struct Death: Sendable, CustomStringConvertible {
    public struct Survivor: Hashable, Sendable {
        public let pid: Int32
        public let startTimeTicks: UInt64
        public let state: String
        public let wchan: String
    }

    /// Identity of a scope's init, within ``Death/bootId``.
    public struct Init: Hashable, Sendable {
        public let pid: Int32
        public let startTimeTicks: UInt64
        /// Of its pidfd; 0: Linux before 6.9.
        public let pidfsInode: UInt64
    }

    public let verdict: Verdict
    /// "DEAD", "DEAD_UNREAPED", "SURVIVORS" or "UNVERIFIABLE".
    public let verdictName: String
    /// How it was killed, and how that was proved, in words.
    public let mechanism: String
    public let proof: String
    /// Cause of ``Verdict/unverifiable``; of ``Verdict/survivors`` what holds them, where that is known; else "".
    public let reason: String
    /// The limit that ended the scope: ``ScopeLimit/memory``, ``ScopeLimit/time``, or none.
    public let limit: ScopeLimit
    public let scope: String
    public let pidnsInode: UInt64
    /// The boot that pids and start times are of.
    public let bootId: String
    /// `nil`: it was never known, or there is none (macOS).
    public let initProcess: Init?
    /// Processes alive at the request, the scope's init not counted. A lower bound without a cgroup.
    public let aliveAtRequest: UInt32
    /// In ms since 1970.
    public let requestedAtMs: Int64
    /// From the request to the last death, and to its confirmation, in microseconds.
    public let lastDeathUs: Int64
    public let confirmedUs: Int64
    public let survivors: [Survivor]
    /// What the host did for the scope, and how that ended.
    public let works: [HostWork]
    /// For people, several lines.
    public let text: String

    public var description: String { text }

    init(copying death: OpaquePointer) {
        verdict = Verdict(orch_death_verdict(death))
        verdictName = string(orch_death_verdict_name(death))
        mechanism = string(orch_death_mechanism(death))
        proof = string(orch_death_proof(death))
        reason = string(orch_death_reason(death))
        limit = ScopeLimit(rawValue: orch_death_limit(death))
        scope = string(orch_death_scope(death))
        pidnsInode = orch_death_pidns_inode(death)
        bootId = string(orch_death_boot_id(death))
        var initPid: Int32 = 0
        var initStart: UInt64 = 0
        var initInode: UInt64 = 0
        let known = orch_death_init(death, &initPid, &initStart, &initInode) == 0
        initProcess = known ? Init(pid: initPid, startTimeTicks: initStart, pidfsInode: initInode) : nil
        aliveAtRequest = orch_death_alive_at_request(death)
        requestedAtMs = orch_death_requested_at_ms(death)
        lastDeathUs = orch_death_last_death_us(death)
        confirmedUs = orch_death_confirmed_us(death)
        survivors = (0..<orch_death_survivor_count(death)).map { index in
            var pid: Int32 = 0
            var start: UInt64 = 0
            var state: UnsafePointer<CChar>?
            var wchan: UnsafePointer<CChar>?
            orch_death_survivor(death, index, &pid, &start, &state, &wchan)
            return Survivor(pid: pid, startTimeTicks: start, state: string(state), wchan: string(wchan))
        }
        works = (0..<orch_death_work_count(death)).map { index in
            var what: UnsafePointer<CChar>?
            var settled: UInt32 = 0
            var outcome: UnsafePointer<CChar>?
            orch_death_work(death, index, &what, &settled, &outcome)
            return HostWork(what: string(what), outcome: settled == 1 ? string(outcome) : nil)
        }
        text = string(orch_death_text(death))
    }
}

/// Waits for a certificate. The callback's end without one is an error, so that nobody waits for ever.
final class DeathReceiver: Sendable {
    let promise: Promise<Death>

    init(_ promise: Promise<Death>) { self.promise = promise }

    deinit { promise.fail(OrchError(.eclosed, "the context ended before the scope's certificate came")) }
}

func onDeath(_ userdata: UnsafeMutableRawPointer?, _ scope: OpaquePointer?, _ death: OpaquePointer?) {
    guard let death else { return }
    Callback<DeathReceiver>.body(userdata).promise.succeed(Death(copying: death))
}
