// SPDX-License-Identifier: Apache-2.0
import COrch

/// How a scope is closed: the ladder, best last.
public struct Rung: OrchConstant {
    public let rawValue: UInt32
    public init(rawValue: UInt32) { self.rawValue = rawValue }

    /// By descent: best effort, never certified dead once a program ran.
    public static let subreaper = Self(ORCH_RUNG_SUBREAPER)
    /// A cgroup v2 leaf of ours alone.
    public static let cgroup = Self(ORCH_RUNG_CGROUP)
    /// A PID namespace with our init.
    public static let pidns = Self(ORCH_RUNG_PIDNS)
    /// The same inside a cgroup v2 leaf of ours.
    public static let cgroupPidns = Self(ORCH_RUNG_CGROUP_PIDNS)
}

/// What of a scope is limited.
public struct ScopeLimit: OptionSet, Hashable, Sendable {
    public let rawValue: UInt32
    public init(rawValue: UInt32) { self.rawValue = rawValue }

    /// When it is exceeded and the kernel kills for it, the whole scope ends.
    public static let memory = Self(rawValue: ORCH_LIMIT_MEMORY)
    public static let processes = Self(rawValue: ORCH_LIMIT_PROCESSES)
    public static let cpu = Self(rawValue: ORCH_LIMIT_CPU)
    public static let time = Self(rawValue: ORCH_LIMIT_TIME)
}

/// What was made of a limit.
public struct LimitState: OrchConstant {
    public let rawValue: UInt32
    public init(rawValue: UInt32) { self.rawValue = rawValue }

    public static let unasked = Self(ORCH_LIMIT_UNASKED)
    public static let enforced = Self(ORCH_LIMIT_ENFORCED)
    /// It binds each process alone, or not everything is counted.
    public static let partial = Self(ORCH_LIMIT_PARTIAL)
    public static let absent = Self(ORCH_LIMIT_ABSENT)
}

/// Everything that one task started, as a closed set of processes.
///
/// A scope made here is for **unsandboxed** programs; a ``Sandbox`` makes its own. When the last reference is
/// dropped without a stop, the load is killed and no certificate is had.
public actor Scope {
    public struct Options: Sendable {
        /// For logs and certificates; nil: the scope's random name.
        public var label: String?
        /// The least that is accepted; below it the start fails. nil: ``Rung/pidns``.
        public var leastRung: Rung?
        /// 0: 10000.
        public var setupTimeoutMs: UInt32
        /// No better one is tried; nil: the best that there is.
        public var bestRung: Rung?
        /// Of wall time from when the scope stands; then it is killed. 0: none.
        public var timeLimitMs: UInt32 = 0
        /// Of all its processes together, swap included. 0: none.
        public var memoryLimitBytes: UInt64 = 0
        /// Processes and threads, zombies included. 0: the usual number.
        public var processLimit: UInt32 = 0
        /// Of one processor: 150 is one and a half. 0: none.
        public var cpuLimitPercent: UInt32 = 0
        /// Those that have to be enforced, or nothing is started.
        public var requiredLimits: ScopeLimit = []

        public init(label: String? = nil, leastRung: Rung? = nil, setupTimeoutMs: UInt32 = 0,
                    bestRung: Rung? = nil) {
            self.label = label
            self.leastRung = leastRung
            self.setupTimeoutMs = setupTimeoutMs
            self.bestRung = bestRung
        }
    }

    nonisolated let handle: Handle
    // The end that nobody requested comes here; nil if somebody else listens for it.
    private let ending: Promise<Death>?

    public nonisolated var unownedExecutor: UnownedSerialExecutor {
        handle.executor.asUnownedSerialExecutor()
    }

    /// Returns at once: the scope is set up in the background. `ORCH_EHELPER`: orch-reaper is missing, of
    /// another version, or did not start.
    public init(_ context: Context, _ options: Options = Options()) async throws(OrchError) {
        let ending = Promise<Death>()
        self.ending = ending
        handle = try await context.make(orch_scope_unref) { (ctx, made) throws(OrchError) in
            try withCMemory { memory throws(OrchError) in
                var opts = orch_scope_opts()
                orch_scope_opts_init(&opts, sizeOf(orch_scope_opts.self))
                opts.label = try memory.string(options.label)
                opts.least_rung = options.leastRung?.rawValue ?? 0
                opts.setup_timeout_ms = options.setupTimeoutMs
                opts.best_rung = options.bestRung?.rawValue ?? 0
                opts.time_limit_ms = options.timeLimitMs
                opts.memory_limit_bytes = options.memoryLimitBytes
                opts.process_limit = options.processLimit
                opts.cpu_limit_percent = options.cpuLimitPercent
                opts.required_limits = options.requiredLimits.rawValue
                try check { orch_scope_new(ctx, &opts, &made, $0) }
            }
            try listen(made, ending)
        }
    }

    /// One that the library lends.
    init(_ handle: Handle, listens: Bool) throws(OrchError) {
        self.handle = handle
        ending = listens ? Promise<Death>() : nil
        if let ending { try listen(handle.pointer, ending) }
    }

    /// Waits until the scope stands. `ORCH_EUNENFORCEABLE`: the host can not give the least rung (the message
    /// names cause and remedy); `ORCH_ETIMEDOUT`; `ORCH_ECANCELED`: the task was cancelled, the scope goes
    /// on.
    public func start(timeoutMs: Int64 = 20_000) async throws(OrchError) {
        let clock = ContinuousClock()
        let end = clock.now + .milliseconds(timeoutMs)
        while true {
            do {
                // A short turn, so that other calls get theirs.
                try check { orch_scope_start_wait(handle.pointer, 5, $0) }
                return
            } catch where error.code == .etimedout {
                if clock.now >= end { throw error }
            }
            if Task.isCancelled {
                throw OrchError(.ecanceled, "the task that waited for the scope was cancelled")
            }
            await Task.yield()
        }
    }

    /// "orch-" and 16 hexadecimal digits.
    public nonisolated var name: String { string(orch_scope_name(handle.pointer)) }
    /// nil while it is not set up.
    public var rung: Rung? {
        let rung = orch_scope_rung(handle.pointer)
        return rung == 0 ? nil : Rung(rung)
    }
    /// Host pid of the scope's init; nil while there is none.
    public var initPid: Int32? {
        let pid = orch_scope_init_pid(handle.pointer)
        return pid > 0 ? pid : nil
    }
    /// Of its PID namespace, or 0.
    public var pidnsInode: UInt64 { orch_scope_pidns_inode(handle.pointer) }
    /// Absolute path of its cgroup v2 leaf; nil without one.
    public var cgroup: String? {
        let path = string(orch_scope_cgroup(handle.pointer))
        return path.isEmpty ? nil : path
    }

    /// What was made of one limit, and the mechanism in words, or the cause of its absence. nil while the scope does
    /// not stand.
    public func limit(_ limit: ScopeLimit) -> (state: LimitState, mechanism: String)? {
        var state: UInt32 = 0
        var mechanism: UnsafePointer<CChar>?
        guard orch_scope_limit(handle.pointer, limit.rawValue, &state, &mechanism) == 0 else { return nil }
        return (LimitState(state), string(mechanism))
    }

    /// Starts a program; returns at once. A later failure is what ``Proc/exit`` throws.
    public func spawn(_ argv: [String], _ options: Proc.Options = Proc.Options()) throws(OrchError) -> Proc {
        try Proc(argv, options, in: handle, orch_scope_spawn)
    }

    /// Stops everything in the scope and waits for the certificate, which comes at the deadline at the
    /// latest. A scope that is over answers with its certificate again.
    ///
    /// A stop can not be taken back: in a cancelled task it goes on too, and its certificate is returned.
    /// - Parameters:
    ///   - graceMs: SIGTERM first and so long to wait; 0: SIGKILL at once.
    ///   - deadlineMs: from the request to the certificate; 0: 10000.
    @discardableResult
    public func stop(graceMs: UInt32 = 0, deadlineMs: UInt32 = 0) async throws(OrchError) -> Death {
        let promise = Promise<Death>()
        try check {
            var opts = orch_stop_opts()
            orch_stop_opts_init(&opts, sizeOf(orch_stop_opts.self))
            opts.grace_ms = graceMs
            opts.deadline_ms = deadlineMs
            return orch_scope_stop(
                handle.pointer, &opts, onDeath, Callback.retained(DeathReceiver(promise)), releaseCallback, $0
            )
        }
        let death = try await promise.value()
        ending?.succeed(death)
        return death
    }

    /// Waits for the scope's end, whoever causes it (a stop, the leader's exit, the helper's death).
    /// `ORCH_ECANCELED`: the task was cancelled; the scope goes on. `ORCH_ESTATE`: a scope that was lent to a
    /// ``Job`` tells its end only to who runs it.
    public var death: Death {
        get async throws(OrchError) {
            guard let ending else { throw OrchError(.estate, "this scope's end is told to its owner") }
            return try await ending.valueUnlessCancelled()
        }
    }
}

private func listen(_ scope: OpaquePointer?, _ ending: Promise<Death>) throws(OrchError) {
    try check {
        orch_scope_on_death(scope, onDeath, Callback.retained(DeathReceiver(ending)), releaseCallback, $0)
    }
}
