// SPDX-License-Identifier: Apache-2.0
import COrch

public struct SandboxRoot: OrchConstant {
    public let rawValue: UInt32
    public init(rawValue: UInt32) { self.rawValue = rawValue }

    /// Nothing but /proc, /dev, /tmp.
    public static let empty = Self(ORCH_ROOT_EMPTY)
    /// And read-only /usr, /bin, /lib*, a minimal /etc.
    public static let tools = Self(ORCH_ROOT_TOOLS)
}

public struct SandboxNet: OrchConstant {
    public let rawValue: UInt32
    public init(rawValue: UInt32) { self.rawValue = rawValue }

    public static let none = Self(ORCH_NET_NONE)
    /// 127.0.0.1:8080 inside is a socket that the host accepts on: ``Sandbox/listenerFd()``.
    public static let broker = Self(ORCH_NET_BROKER)
}

public struct PathAccess: OptionSet, Sendable {
    public let rawValue: UInt32
    public init(rawValue: UInt32) { self.rawValue = rawValue }

    public static let read = Self(rawValue: ORCH_PATH_READ)
    public static let write = Self(rawValue: ORCH_PATH_WRITE)
    public static let exec = Self(rawValue: ORCH_PATH_EXEC)
    /// The folder is handed to the sandbox's own uid when the caller is root. Implies the others.
    public static let own = Self(rawValue: ORCH_PATH_OWN)
}

public struct ProtectionLevel: OrchConstant {
    public let rawValue: UInt32
    public init(rawValue: UInt32) { self.rawValue = rawValue }

    /// Not enforceable: the start is refused with its name.
    public static let required = Self(ORCH_PROTECT_REQUIRED)
    /// Goes on, and the report says partial.
    public static let degradable = Self(ORCH_PROTECT_DEGRADABLE)
    public static let off = Self(ORCH_PROTECT_OFF)
}

/// Deny by default on every channel: a policy (the builder calls, allowed until the start), and once started
/// a scope with an empty root, namespaces of its own, Landlock, seccomp and no capabilities.
///
/// When the last reference is dropped, the load is killed.
public actor Sandbox {
    public struct Options: Sendable {
        /// nil: the scope's random name.
        public var label: String?
        /// nil: ``SandboxRoot/tools``.
        public var root: SandboxRoot?
        /// nil: ``SandboxNet/none``.
        public var net: SandboxNet?
        /// nil: ``Rung/pidns``.
        public var leastRung: Rung?
        /// 0: 10000.
        public var setupTimeoutMs: UInt32 = 0
        /// 0: 512.
        public var maxProcesses: UInt32 = 0
        /// 0: 1024.
        public var maxOpenFiles: UInt32 = 0
        /// 0: 2048.
        public var maxFileMib: UInt64 = 0
        /// What /tmp, /dev/shm and an overlay hold together; 0: 256.
        public var tmpMib: UInt64 = 0
        /// Where a cgroup controller is there (degradable); 0: none.
        public var maxMemoryMib: UInt64 = 0
        /// Of one processor, where a cgroup controller is there (degradable); 0: none.
        public var maxCpuPercent: UInt32 = 0
        /// Of wall time from the start; then everything in it is killed. 0: none.
        public var timeLimitMs: Int64 = 0

        public init(label: String? = nil, root: SandboxRoot? = nil, net: SandboxNet? = nil) {
            self.label = label
            self.root = root
            self.net = net
        }

        func fill(_ opts: inout orch_sandbox_opts, _ memory: CMemory) throws(OrchError) {
            orch_sandbox_opts_init(&opts, sizeOf(orch_sandbox_opts.self))
            opts.label = try memory.string(label)
            opts.root = root?.rawValue ?? 0
            opts.net = net?.rawValue ?? 0
            opts.least_rung = leastRung?.rawValue ?? 0
            opts.setup_timeout_ms = setupTimeoutMs
            opts.max_processes = maxProcesses
            opts.max_open_files = maxOpenFiles
            opts.max_file_mib = maxFileMib
            opts.tmp_mib = tmpMib
            opts.max_memory_mib = maxMemoryMib
            opts.max_cpu_percent = maxCpuPercent
            opts.time_limit_ms = timeLimitMs
        }
    }

    /// Port inside of the ``SandboxNet/broker`` listener.
    public static let brokerPort = UInt16(ORCH_BROKER_PORT)

    nonisolated let handle: Handle
    private let borrowed: Bool
    private var starting: Promise<Void>?
    private var ownScope: Scope?

    public nonisolated var unownedExecutor: UnownedSerialExecutor {
        handle.executor.asUnownedSerialExecutor()
    }

    /// Nothing is started.
    public init(_ context: Context, _ options: Options = Options()) async throws(OrchError) {
        borrowed = false
        handle = try await context.make(orch_sandbox_unref) { (ctx, made) throws(OrchError) in
            try withCMemory { memory throws(OrchError) in
                var opts = orch_sandbox_opts()
                try options.fill(&opts, memory)
                try check { orch_sandbox_new(ctx, &opts, &made, $0) }
            }
        }
    }

    /// One that somebody else has started, and will stop if it is borrowed.
    init(standing handle: Handle, borrowed: Bool) {
        self.borrowed = borrowed
        self.handle = handle
        let started = Promise<Void>()
        started.succeed(())
        starting = started
    }

    // MARK: Policy

    /// Makes a host file or folder visible inside, at `inner` (absolute; nil: the same path). A path that is
    /// missing at the start is a start error. `ORCH_EINVAL`, `ORCH_EEXIST`, `ORCH_ETOOBIG`, `ORCH_ESTATE`.
    public func addPath(_ host: String, at inner: String? = nil, _ access: PathAccess) throws(OrchError) {
        try withCMemory { memory throws(OrchError) in
            let host = try memory.string(host)
            let inner = try memory.string(inner)
            try check { orch_sandbox_add_path(handle.pointer, host, inner, access.rawValue, $0) }
        }
    }

    /// Closes an inner path and everything below it. The deeper of two rules wins, and at the same path this one. A
    /// path that is missing at the start stays closed when it is made later; one that ends in a slash is a folder.
    public func denyPath(_ inner: String) throws(OrchError) {
        try withCMemory { memory throws(OrchError) in
            let inner = try memory.string(inner)
            try check { orch_sandbox_deny_path(handle.pointer, inner, $0) }
        }
    }

    /// The folder that is the sandbox's own at `inner` (nil: "/work"), and the working directory of its
    /// programs.
    public func setWorkspace(_ host: String, at inner: String? = nil) throws(OrchError) {
        try withCMemory { memory throws(OrchError) in
            let host = try memory.string(host)
            let inner = try memory.string(inner)
            try check { orch_sandbox_set_workspace(handle.pointer, host, inner, $0) }
        }
    }

    /// A workspace of which the host's folder stays as it is: what programs write goes to the private file system
    /// (``Options/tmpMib``), and ``changes()`` tells what they changed. A sandbox has a workspace or this, once.
    /// `ORCH_ENOTSUP`: not on this system. At the start `ORCH_EUNENFORCEABLE`: the kernel has no overlayfs for it.
    public func setOverlay(_ host: String, at inner: String? = nil) throws(OrchError) {
        try withCMemory { memory throws(OrchError) in
            let host = try memory.string(host)
            let inner = try memory.string(inner)
            try check { orch_sandbox_set_overlay(handle.pointer, host, inner, $0) }
        }
    }

    /// Reads a policy (schemas/policy.rng): all of it, or nothing is changed. `name` is for messages, which begin
    /// with NAME:LINE. `ORCH_EINVAL`: not well-formed, not of the schema, or a rule that is refused; `ORCH_ETOOBIG`.
    public func readPolicy(_ xml: String, name: String? = nil) throws(OrchError) {
        try withCMemory { memory throws(OrchError) in
            let xml = Array(xml.utf8)
            let bytes = memory.bytes(xml)
            let name = try memory.string(name)
            try check { orch_sandbox_read_policy(handle.pointer, bytes, xml.count, name, $0) }
        }
    }

    /// The same from a file. Also `ORCH_ENOENT`, `ORCH_ESYS`.
    public func loadPolicy(_ path: String) throws(OrchError) {
        try withCMemory { memory throws(OrchError) in
            let path = try memory.string(path)
            try check { orch_sandbox_load_policy(handle.pointer, path, $0) }
        }
    }

    /// Adds to the environment of every program, in which nothing is of the host's. nil as value removes.
    public func setEnvironment(_ name: String, _ value: String?) throws(OrchError) {
        try withCMemory { memory throws(OrchError) in
            let name = try memory.string(name)
            let value = try memory.string(value)
            try check { orch_sandbox_set_env(handle.pointer, name, value, $0) }
        }
    }

    /// "namespaces", "landlock", "seccomp": required by default; "memory", "cpu": degradable.
    public func setProtection(_ protection: String, _ level: ProtectionLevel) throws(OrchError) {
        try withCMemory { memory throws(OrchError) in
            let protection = try memory.string(protection)
            try check { orch_sandbox_set_protection(handle.pointer, protection, level.rawValue, $0) }
        }
    }

    // MARK: Life

    /// Sets up namespaces, mounts and the listener. A second call waits for the same start. It takes at most
    /// `setupTimeoutMs`; in a cancelled task it goes on in the background and `ORCH_ECANCELED` is thrown.
    ///
    /// `ORCH_EUNENFORCEABLE` (what, why, remedy), `ORCH_ENOENT` for a missing host path, `ORCH_ESYS` with the
    /// step, ...
    public func start() async throws(OrchError) {
        if let starting { return try await starting.valueUnlessCancelled() }
        let promise = Promise<Void>()
        try check {
            orch_sandbox_start(
                handle.pointer, onStart, Callback.retained(StartReceiver(promise)), releaseCallback, $0)
        }
        starting = promise
        try await promise.valueUnlessCancelled()
    }

    /// Its scope; `ORCH_ESTATE` before the start.
    public var scope: Scope {
        get throws(OrchError) {
            if let ownScope { return ownScope }
            guard let scope = orch_sandbox_scope(handle.pointer) else {
                throw OrchError(.estate, "the sandbox is not started")
            }
            let made = try Scope(
                Handle(orch_scope_ref(scope), handle.executor, orch_scope_unref), listens: !borrowed)
            ownScope = made
            return made
        }
    }

    /// The uid of the load as the host sees it.
    public var hostUid: UInt32 { orch_sandbox_host_uid(handle.pointer) }

    /// The listening socket of ``SandboxNet/broker``, lent: ``Broker/addListener(_:as:)`` duplicates it.
    public func listenerFd() throws(OrchError) -> Int32 {
        let fd = orch_sandbox_listener_fd(handle.pointer)
        guard fd >= 0 else { throw OrchError(OrchError.Code(fd)) }
        return fd
    }

    /// Connects to 127.0.0.1:port **inside** the sandbox. The socket is non-blocking, close-on-exec, and the
    /// caller's to close. `ORCH_ESYS` with ECONNREFUSED: nobody listens there.
    public func connect(_ port: UInt16) async throws(OrchError) -> Int32 {
        let promise = Promise<Int32>()
        try check {
            orch_sandbox_connect(
                handle.pointer, port, onConnect, Callback.retained(ConnectReceiver(promise)), releaseCallback,
                $0)
        }
        // Not given up when the task is cancelled: somebody has to take the socket.
        return try await promise.value()
    }

    /// Starts a program in the started sandbox; returns at once.
    public func spawn(_ argv: [String], _ options: Proc.Options = Proc.Options()) throws(OrchError) -> Proc {
        try Proc(argv, options, in: handle, orch_sandbox_spawn)
    }

    /// Stops everything in it: see ``Scope/stop(graceMs:deadlineMs:)``. `ORCH_ESTATE`: not started.
    @discardableResult
    public func stop(graceMs: UInt32 = 0, deadlineMs: UInt32 = 0) async throws(OrchError) -> Death {
        try await scope.stop(graceMs: graceMs, deadlineMs: deadlineMs)
    }
}

private final class StartReceiver: Sendable {
    let promise: Promise<Void>
    init(_ promise: Promise<Void>) { self.promise = promise }
    deinit { promise.fail(OrchError(.eclosed, "the context ended before the sandbox stood")) }
}

private func onStart(_ userdata: UnsafeMutableRawPointer?, _ sandbox: OpaquePointer?, _ error: OpaquePointer?)
{
    let promise = Callback<StartReceiver>.body(userdata).promise
    if let error { promise.fail(OrchError(copying: error)) } else { promise.succeed(()) }
}

private final class ConnectReceiver: Sendable {
    let promise: Promise<Int32>
    init(_ promise: Promise<Int32>) { self.promise = promise }
    deinit { promise.fail(OrchError(.eclosed, "the sandbox ended before the connection stood")) }
}

private func onConnect(_ userdata: UnsafeMutableRawPointer?, _ fd: Int32, _ error: OpaquePointer?) {
    let promise = Callback<ConnectReceiver>.body(userdata).promise
    if let error { promise.fail(OrchError(copying: error)) } else { promise.succeed(fd) }
}
