// SPDX-License-Identifier: Apache-2.0
import COrch

#if canImport(Glibc)
    import Glibc
#elseif canImport(Musl)
    import Musl
#elseif canImport(Darwin)
    import Darwin
#endif

/// The one thread that owns a context. It polls `orch_ctx_fd()`, calls `orch_ctx_process()`, and runs the
/// jobs of every actor that has it as its executor: all actors of this package, and yours if you like:
///
///     actor Conductor {
///         let context: Context
///         nonisolated var unownedExecutor: UnownedSerialExecutor {
///             context.executor.asUnownedSerialExecutor()
///         }
///     }
///
/// From such an actor the calls of this package need no change of threads. The thread ends when the last
/// handle of the context is gone. It blocks all signals but those of its own faults.
public final class OrchExecutor: SerialExecutor {
    let loop: Loop

    /// Takes over the caller's reference of the context.
    init(owning ctx: OpaquePointer) throws(OrchError) {
        loop = Loop(ctx)
        loop.executor = self
        try loop.startThread()
    }

    deinit { loop.stop() }

    public func enqueue(_ job: consuming ExecutorJob) { loop.add(UnownedJob(job), for: self) }

    public func checkIsolated() {
        precondition(loop.isCurrentThread, "this code belongs on the thread of its Orch context")
    }

    @available(macOS 26.0, iOS 26.0, tvOS 26.0, watchOS 26.0, visionOS 26.0, *)
    public func isIsolatingCurrentContext() -> Bool? { loop.isCurrentThread }
}

final class Loop: @unchecked Sendable {
    private struct Queue {
        // The executor with it: it has to outlive the job that runs on it.
        var jobs: [(job: UnownedJob, executor: OrchExecutor)] = []
        var stopping = false
        // nil before the thread runs and after it has given the context back.
        var ctx: OpaquePointer?
        var thread: pthread_t?
    }

    private let queue: Locked<Queue>
    let ctx: OpaquePointer
    // nil when its last handle is gone. Set before the thread runs.
    weak var executor: OrchExecutor?
    // Of the thread alone.
    private var watches: [Int32: (events: Int16, ready: () -> Void)] = [:]

    init(_ ctx: OpaquePointer) {
        self.ctx = ctx
        queue = Locked(Queue(ctx: ctx))
    }

    var isCurrentThread: Bool {
        queue.withLock { $0.thread.map { pthread_equal($0, pthread_self()) != 0 } ?? false }
    }

    func add(_ job: UnownedJob, for executor: OrchExecutor) {
        queue.withLock { queue in
            queue.jobs.append((job, executor))
            // Under the lock, because the thread gives the context back under it. (It writes to an eventfd.)
            if queue.jobs.count == 1, let ctx = queue.ctx { orch_ctx_wakeup(ctx) }
        }
    }

    func stop() {
        queue.withLock { queue in
            queue.stopping = true
            if let ctx = queue.ctx { orch_ctx_wakeup(ctx) }
        }
    }

    /// Calls `ready` on the thread while `fd` is ready for `events` (POLLIN, POLLOUT). Only on the thread.
    func watch(_ fd: Int32, _ events: Int32, _ ready: @escaping () -> Void) {
        watches[fd] = (Int16(events), ready)
    }

    func unwatch(_ fd: Int32) { watches[fd] = nil }

    func startThread() throws(OrchError) {
        var signals = sigset_t()
        var before = sigset_t()
        sigfillset(&signals)
        for fault in [SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGTRAP, SIGABRT, SIGSYS] {
            sigdelset(&signals, fault)
        }
        var attributes = pthread_attr_t()
        pthread_attr_init(&attributes)
        defer { pthread_attr_destroy(&attributes) }
        pthread_attr_setdetachstate(&attributes, Int32(PTHREAD_CREATE_DETACHED))
        pthread_attr_setstacksize(&attributes, 4 << 20)
        #if canImport(Darwin)
            var thread: pthread_t?
        #else
            var thread = pthread_t()
        #endif
        let own = Unmanaged.passRetained(self)
        Live.add(1)
        // Before it runs, so that no signal of the host can be taken by it.
        pthread_sigmask(SIG_SETMASK, &signals, &before)
        let failed = pthread_create(&thread, &attributes, threadMain, own.toOpaque())
        pthread_sigmask(SIG_SETMASK, &before, nil)
        if failed != 0 {
            own.release()
            Live.add(-1)
            queue.withLock { $0.ctx = nil }
            orch_ctx_unref(ctx)
            throw OrchError(.esys, "the context's thread could not be started", errno: failed, step: "thread")
        }
    }

    fileprivate func run() {
        queue.withLock { $0.thread = pthread_self() }
        let fd = orch_ctx_fd(ctx)
        // From here on this thread is the owner, and handles that others drop are left to it.
        orch_ctx_process(ctx, nil)
        while turn(fd) {}
        // What the last handles left.
        orch_ctx_process(ctx, nil)
        defer { Live.add(-1) }
        queue.withLock { queue in
            queue.ctx = nil
            queue.thread = nil
        }
        orch_ctx_unref(ctx)
    }

    private func turn(_ fd: Int32) -> Bool {
        var (jobs, stopping) = queue.withLock { queue in
            defer { queue.jobs = [] }
            return (Array(queue.jobs.reversed()), queue.stopping)
        }
        let idle = jobs.isEmpty
        while let (job, executor) = jobs.popLast() {
            job.runSynchronously(on: executor.asUnownedSerialExecutor())
        }
        if idle && stopping { return false }
        wait(fd, idle ? -1 : 0)
        orch_ctx_process(ctx, nil)
        return true
    }

    private func wait(_ fd: Int32, _ timeout: Int32) {
        var fds = [pollfd(fd: fd, events: Int16(POLLIN), revents: 0)]
        for (fd, watch) in watches { fds.append(pollfd(fd: fd, events: watch.events, revents: 0)) }
        guard poll(&fds, nfds_t(fds.count), timeout) > 0 else { return }
        for one in fds.dropFirst() where one.revents != 0 { watches[one.fd]?.ready() }
    }
}

#if canImport(Darwin)
    private func threadMain(_ loop: UnsafeMutableRawPointer) -> UnsafeMutableRawPointer? {
        pthread_setname_np("orch")
        Unmanaged<Loop>.fromOpaque(loop).takeRetainedValue().run()
        return nil
    }
#else
    private func threadMain(_ loop: UnsafeMutableRawPointer?) -> UnsafeMutableRawPointer? {
        Unmanaged<Loop>.fromOpaque(loop!).takeRetainedValue().run()
        return nil
    }
#endif
