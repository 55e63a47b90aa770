// SPDX-License-Identifier: Apache-2.0
import COrch

/// What a ``ProgramStream`` is.
public struct StreamKind: OrchConstant {
    public let rawValue: UInt32
    public init(rawValue: UInt32) { self.rawValue = rawValue }

    /// A pipe that the program writes: stdout, stderr, or both of them.
    public static let output = Self(ORCH_STREAM_OUTPUT)
    /// A pipe that it reads: stdin.
    public static let input = Self(ORCH_STREAM_INPUT)
    /// A terminal of its own, for any of the three.
    public static let pty = Self(ORCH_STREAM_PTY)
}

/// How a ``ProgramStream`` ended.
public struct StreamEnd: OrchConstant {
    public let rawValue: UInt32
    public init(rawValue: UInt32) { self.rawValue = rawValue }

    /// Nobody writes any more, and all was read; input: shut, and all was written.
    public static let eof = Self(ORCH_STREAM_EOF)
    /// All of the program's own is there, and somebody else still holds the other end; input: nobody reads.
    public static let cut = Self(ORCH_STREAM_CUT)
    /// By ``ProgramStream/shut()``.
    public static let closed = Self(ORCH_STREAM_CLOSED)
    /// Reading or writing failed; the log says why.
    public static let broken = Self(ORCH_STREAM_BROKEN)
}

/// One end of a pipe or terminal; the program that it is given to in ``Proc/Options`` has the other.
///
/// What the program itself wrote before it exited is there before ``Proc/exit`` is. Dropping the last reference
/// does not end a stream that a program has.
public actor ProgramStream {
    public struct Options: Sendable {
        /// What of an output is kept for ``ProgramStream/captured``: of its beginning, and of its end.
        public var captureFirstBytes: UInt64
        public var captureLastBytes: UInt64
        /// Nothing is given to ``ProgramStream/chunks``.
        public var captureOnly: Bool
        /// What of an input waits at most; 0: 65536.
        public var queueLimitBytes: UInt64
        /// The size of a terminal; 0: 24 and 80.
        public var rows: UInt32
        public var columns: UInt32
        /// It goes on after its program's exit while somebody else holds the other end.
        public var hold: Bool
        /// It begins as after ``ProgramStream/pause()``.
        public var paused: Bool

        public init(
            captureFirstBytes: UInt64 = 0, captureLastBytes: UInt64 = 0, captureOnly: Bool = false,
            queueLimitBytes: UInt64 = 0, rows: UInt32 = 0, columns: UInt32 = 0, hold: Bool = false,
            paused: Bool = false
        ) {
            self.captureFirstBytes = captureFirstBytes
            self.captureLastBytes = captureLastBytes
            self.captureOnly = captureOnly
            self.queueLimitBytes = queueLimitBytes
            self.rows = rows
            self.columns = columns
            self.hold = hold
            self.paused = paused
        }
    }

    nonisolated let handle: Handle
    private let watch: StreamWatch

    public nonisolated var unownedExecutor: UnownedSerialExecutor {
        handle.executor.asUnownedSerialExecutor()
    }

    /// `ORCH_ESYS`: no descriptor or terminal can be had.
    public init(_ context: Context, _ kind: StreamKind, _ options: Options = Options()) async throws(OrchError) {
        let watch = StreamWatch()
        handle = try await context.make(orch_stream_unref) { (ctx, made) throws(OrchError) in
            var opts = orch_stream_opts()
            orch_stream_opts_init(&opts, sizeOf(orch_stream_opts.self))
            opts.flags =
                (options.hold ? ORCH_STREAM_HOLD : 0) | (options.paused ? ORCH_STREAM_PAUSED : 0)
            opts.kind = kind.rawValue
            opts.rows = options.rows
            opts.columns = options.columns
            opts.capture_first_bytes = options.captureFirstBytes
            opts.capture_last_bytes = options.captureLastBytes
            opts.queue_limit_bytes = options.queueLimitBytes
            if kind != .input && !options.captureOnly { opts.data = onStreamData }
            opts.end = onStreamEnd
            opts.writable = onStreamWritable
            opts.userdata = Callback.retained(watch)
            opts.destroy = releaseCallback
            try check { orch_stream_new(ctx, &opts, &made, $0) }
        }
        self.watch = watch
        chunks = watch.chunks
    }

    /// The pieces of output, for one reader; what it does not take is kept for it, and ``pause()`` holds the
    /// program instead. It ends with the stream.
    public nonisolated let chunks: AsyncStream<[UInt8]>

    /// Nothing is read: the program stands still once its pipe is full, and nothing is lost. `ORCH_ECLOSED`.
    public func pause() throws(OrchError) { try check { orch_stream_pause(handle.pointer, $0) } }

    /// Reads again. `ORCH_ECLOSED`.
    public func resume() throws(OrchError) { try check { orch_stream_resume(handle.pointer, $0) } }

    /// Gives the program bytes to read, and waits while the queue is full. `ORCH_ECLOSED`: it was shut or has
    /// ended; `ORCH_ECANCELED`: the task was cancelled, and some bytes may have been taken.
    public func write(_ bytes: [UInt8]) async throws(OrchError) {
        var rest = bytes[...]
        while true {
            let room = watch.nextRoom()
            var taken = 0
            do {
                let part = Array(rest)
                try check { orch_stream_write(handle.pointer, part, part.count, &taken, $0) }
                return
            } catch where error.code == .ebusy {
                rest = rest.dropFirst(taken)
            }
            try await room.valueUnlessCancelled()
        }
    }

    /// No more comes from here. Input: what waits is written, then the program reads end of file. Output: no
    /// more is read. Terminal: it is hung up.
    public func shut() throws(OrchError) { try check { orch_stream_close(handle.pointer, $0) } }

    /// The terminal has another size: SIGWINCH. `ORCH_ECLOSED`.
    public func resize(rows: UInt32, columns: UInt32) throws(OrchError) {
        try check { orch_stream_resize(handle.pointer, rows, columns, $0) }
    }

    /// Waits for the end. `ORCH_ECANCELED`: the waiting task was cancelled, the stream goes on.
    public var end: StreamEnd {
        get async throws(OrchError) { try await watch.end.valueUnlessCancelled() }
    }

    /// nil until it has ended.
    public var reason: StreamEnd? {
        let reason = orch_stream_reason(handle.pointer)
        return reason == 0 ? nil : StreamEnd(reason)
    }
    /// Bytes of the program's that were read; input: that went into the pipe.
    public var bytes: UInt64 { orch_stream_bytes(handle.pointer) }
    /// Bytes that wait to be read; after the end, that nobody will read.
    public var queued: UInt64 { orch_stream_queued(handle.pointer) }
    /// What was kept: of the beginning, and behind it of the end.
    public var captured: [UInt8] {
        var length = 0
        guard let bytes = orch_stream_captured(handle.pointer, &length) else { return [] }
        return Array(UnsafeRawBufferPointer(start: bytes, count: length))
    }
    /// Bytes that were read and not kept, from between the two parts of ``captured``.
    public var dropped: UInt64 { orch_stream_dropped(handle.pointer) }
}

private final class StreamWatch: Sendable {
    let chunks: AsyncStream<[UInt8]>
    let sink: AsyncStream<[UInt8]>.Continuation
    let end = Promise<StreamEnd>()
    private let room = Locked(Promise<Void>())

    init() { (chunks, sink) = AsyncStream.makeStream() }

    deinit {
        finish()
        end.fail(OrchError(.eclosed, "the context ended before the stream did"))
    }

    func finish() {
        sink.finish()
        makeRoom()
    }

    /// Settled by the next call of makeRoom().
    func nextRoom() -> Promise<Void> { room.withLock { $0 } }

    func makeRoom() {
        let before = room.withLock { room in
            defer { room = Promise<Void>() }
            return room
        }
        before.succeed(())
    }
}

private func onStreamData(
    _ userdata: UnsafeMutableRawPointer?, _ stream: OpaquePointer?, _ bytes: UnsafeRawPointer?, _ length: Int
) {
    Callback<StreamWatch>.body(userdata).sink.yield(Array(UnsafeRawBufferPointer(start: bytes, count: length)))
}

private func onStreamEnd(_ userdata: UnsafeMutableRawPointer?, _ stream: OpaquePointer?, _ reason: UInt32) {
    let watch = Callback<StreamWatch>.body(userdata)
    watch.finish()
    watch.end.succeed(StreamEnd(reason))
}

private func onStreamWritable(_ userdata: UnsafeMutableRawPointer?, _ stream: OpaquePointer?) {
    Callback<StreamWatch>.body(userdata).makeRoom()
}
