// SPDX-License-Identifier: Apache-2.0
import COrch

public struct TimerState: OrchConstant, CustomStringConvertible {
    public let rawValue: UInt32
    public init(rawValue: UInt32) { self.rawValue = rawValue }

    /// Also when it is due, until it is done.
    public static let pending = Self(ORCH_TIMER_PENDING)
    public static let done = Self(ORCH_TIMER_DONE)
    public static let canceled = Self(ORCH_TIMER_CANCELED)

    /// "PENDING", "DONE", "CANCELED".
    public var description: String { string(orch_timer_state_name(rawValue)) }
}

/// A timer of a ``Journal``, which survives the coordinator. A due one stays due until ``done()``: killed in
/// between, it is due again after the restart. What it starts is best an action whose key names the timer and
/// its round.
public actor JournalTimer {
    /// When it is due.
    public enum Due: Hashable, Sendable {
        /// When the wall clock says so, however it was stepped: in ms since 1970.
        case at(ms: Int64)
        /// When so much time has passed, suspend included; after a reboot what the wall clock leaves of it.
        case after(ms: Int64)
    }

    nonisolated let handle: Handle
    public nonisolated let id: UInt64
    public nonisolated let name: String
    /// 1 when it is set first.
    public nonisolated let round: UInt32
    /// In ms since 1970, by the wall clock as it was when it was set.
    public nonisolated let dueAtMs: Int64
    /// 0 for one that was set with `at`.
    public nonisolated let delayMs: Int64
    public nonisolated let payload: [UInt8]?

    public nonisolated var unownedExecutor: UnownedSerialExecutor {
        handle.executor.asUnownedSerialExecutor()
    }

    fileprivate init(_ handle: Handle) {
        let timer = handle.pointer
        self.handle = handle
        id = orch_timer_id(timer)
        name = string(orch_timer_name(timer))
        round = orch_timer_round(timer)
        dueAtMs = orch_timer_due_at_ms(timer)
        delayMs = orch_timer_delay_ms(timer)
        var length = 0
        payload = orch_timer_payload(timer, &length).map { bytes($0, length) }
    }

    fileprivate static func borrowing(_ timer: OpaquePointer, _ executor: OrchExecutor) -> JournalTimer {
        JournalTimer(Handle(orch_timer_ref(timer), executor, orch_timer_unref))
    }

    /// What this object knows.
    public var state: TimerState { TimerState(orch_timer_state(handle.pointer)) }

    /// What it was for is done. `ORCH_ESTATE`: it is not pending in this round any more.
    public func done() throws(OrchError) { try check { orch_timer_done(handle.pointer, $0) } }

    /// It is not wanted any more. `ORCH_ESTATE`: as ``done()``.
    public func cancel() throws(OrchError) { try check { orch_timer_cancel(handle.pointer, $0) } }
}

extension Journal {
    /// Sets a timer, or sets it anew under the same name: its round rises by 1, and what is known of an
    /// earlier round can neither end nor cancel it. `ORCH_EINVAL`: negative or too far; `ORCH_ETOOBIG`: more
    /// than 4096 bytes; others as for ``begin(_:)``.
    @discardableResult
    public func setTimer(_ name: String, _ due: JournalTimer.Due, payload: [UInt8] = [])
        throws(OrchError) -> JournalTimer
    {
        try withCMemory { memory throws(OrchError) in
            var opts = orch_timer_opts()
            orch_timer_opts_init(&opts, sizeOf(orch_timer_opts.self))
            opts.name = try memory.string(name)
            switch due {
            case .at(let ms): opts.due_at_ms = ms
            case .after(let ms): opts.delay_ms = ms
            }
            opts.payload = memory.bytes(payload)
            opts.payload_length = payload.count
            return JournalTimer(
                try made(handle.executor, orch_timer_unref) {
                    orch_timer_set(handle.pointer, &opts, $0, $1)
                }!)
        }
    }

    /// The timer of that name, in whatever state; nil if there is none.
    public func timer(_ name: String) throws(OrchError) -> JournalTimer? {
        try withCMemory { memory throws(OrchError) in
            let name = try memory.string(name)
            do throws(OrchError) {
                return JournalTimer(
                    try made(handle.executor, orch_timer_unref) {
                        orch_timer_find(handle.pointer, name, $0, $1)
                    }!)
            } catch where error.code == .enoent {
                return nil
            }
        }
    }

    /// All of them, in the order in which they were first set.
    public var timers: [JournalTimer] {
        get throws(OrchError) {
            var found: [JournalTimer] = []
            try withCallback { (timer: OpaquePointer) in
                found.append(JournalTimer.borrowing(timer, handle.executor))
                return true
            } call: { userdata throws(OrchError) in
                try check { orch_timer_each(handle.pointer, onTimer, userdata, $0) }
            }
            return found
        }
    }

    /// The pending timer that is due next, and how long until then (0: it is due); nil: none is pending.
    public var nextTimer: (timer: JournalTimer, waitMs: Int64)? {
        get throws(OrchError) {
            var waitMs: Int64 = 0
            let next = try made(handle.executor, orch_timer_unref) {
                orch_timer_next(handle.pointer, $0, &waitMs, $1)
            }
            return next.map { (JournalTimer($0), waitMs) }
        }
    }

    /// Each timer when it is due, once for each round and stream, also those that are due already. It ends
    /// with its reader, and keeps the journal open until then. `ORCH_ESTATE`: read-only.
    public func dueTimers() throws(OrchError) -> AsyncStream<JournalTimer> {
        let (stream, continuation) = AsyncStream<JournalTimer>.makeStream()
        // The handle of the watch keeps the executor; after it one more may still come.
        let body: @Sendable (OpaquePointer) -> Void = { [weak executor = handle.executor] timer in
            guard let executor else { return }
            continuation.yield(JournalTimer.borrowing(timer, executor))
        }
        let watch = try made(handle.executor, orch_timer_watch_unref) {
            orch_timer_watch_new(
                handle.pointer, handle.executor.loop.ctx, onDue, Callback.retained(body), releaseCallback, $0,
                $1)
        }
        continuation.onTermination = { _ in withExtendedLifetime(watch) {} }
        return stream
    }
}

private func onTimer(_ userdata: UnsafeMutableRawPointer?, _ timer: OpaquePointer?) -> Int32 {
    Callback<(OpaquePointer) -> Bool>.body(userdata)(timer!) ? 0 : 1
}

private func onDue(_ userdata: UnsafeMutableRawPointer?, _ timer: OpaquePointer?) {
    Callback<@Sendable (OpaquePointer) -> Void>.body(userdata)(timer!)
}
