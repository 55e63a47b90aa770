// SPDX-License-Identifier: Apache-2.0
import COrch

#if canImport(Glibc)
    import Glibc
#elseif canImport(Musl)
    import Musl
#elseif canImport(Darwin)
    import Darwin
#endif

/// Owns one reference of a C handle. Dropping it from any thread is allowed: the library then leaves the end
/// to the context's own thread, which lives as long as any handle does.
final class Handle: @unchecked Sendable {
    let pointer: OpaquePointer
    let executor: OrchExecutor
    private let unref: (OpaquePointer?) -> OpaquePointer?

    init(
        _ pointer: OpaquePointer, _ executor: OrchExecutor,
        _ unref: @escaping (OpaquePointer?) -> OpaquePointer?
    ) {
        self.pointer = pointer
        self.executor = executor
        self.unref = unref
        Live.add(1)
    }

    deinit {
        _ = unref(pointer)
        Live.add(-1)
    }

    /// Two handles can be used together only in one context.
    func requireSameContext(as other: Handle, _ what: String) throws(OrchError) {
        guard executor === other.executor else {
            throw OrchError(.einval, "\(what) belongs to another context")
        }
    }
}

/// The handle that a call makes, if it makes one.
func made(
    _ executor: OrchExecutor, _ unref: @escaping (OpaquePointer?) -> OpaquePointer?,
    _ call: (UnsafeMutablePointer<OpaquePointer?>, UnsafeMutablePointer<OpaquePointer?>) -> Int32
) throws(OrchError) -> Handle? {
    var pointer: OpaquePointer?
    try check { call(&pointer, $0) }
    return pointer.map { Handle($0, executor, unref) }
}

/// What stands behind the `userdata` of a callback. C owns one reference, which `destroy` gives back, once.
final class Callback<Body> {
    let body: Body

    init(_ body: Body) {
        self.body = body
        Live.add(1)
    }

    deinit { Live.add(-1) }

    /// The reference for C. The library calls `releaseCallback` for it also when the registration fails.
    static func retained(_ body: Body) -> UnsafeMutableRawPointer {
        Unmanaged.passRetained(Callback(body)).toOpaque()
    }

    static func body(_ userdata: UnsafeMutableRawPointer?) -> Body {
        Unmanaged<Callback>.fromOpaque(userdata!).takeUnretainedValue().body
    }
}

let releaseCallback: @convention(c) (UnsafeMutableRawPointer?) -> Void = { userdata in
    Unmanaged<AnyObject>.fromOpaque(userdata!).release()
}

/// C copies of strings and arrays, for the time of one call.
final class CMemory {
    private var blocks: [UnsafeMutableRawPointer] = []

    fileprivate init() {}

    fileprivate func free() {
        for block in blocks { block.deallocate() }
        blocks = []
    }

    func string(_ text: String?) throws(OrchError) -> UnsafePointer<CChar>? {
        guard let text else { return nil }
        let bytes = text.utf8
        // C would silently stop there: "/allowed\0/secret" is another path than it looks.
        if bytes.contains(0) { throw OrchError(.einval, "a string has a NUL byte in it") }
        let block = UnsafeMutablePointer<CChar>.allocate(capacity: bytes.count + 1)
        blocks.append(UnsafeMutableRawPointer(block))
        var end = block
        for byte in bytes {
            end.pointee = CChar(bitPattern: byte)
            end += 1
        }
        end.pointee = 0
        return UnsafePointer(block)
    }

    func strings(_ texts: [String]?) throws(OrchError) -> UnsafePointer<UnsafePointer<CChar>?>? {
        guard let texts else { return nil }
        let block = UnsafeMutablePointer<UnsafePointer<CChar>?>.allocate(capacity: texts.count + 1)
        blocks.append(UnsafeMutableRawPointer(block))
        for (index, text) in texts.enumerated() { (block + index).initialize(to: try string(text)) }
        (block + texts.count).initialize(to: nil)
        return UnsafePointer(block)
    }

    /// nil for nil and for none.
    func bytes(_ bytes: [UInt8]?) -> UnsafeRawPointer? {
        guard let bytes, !bytes.isEmpty else { return nil }
        let block = UnsafeMutableRawPointer.allocate(byteCount: bytes.count, alignment: 1)
        blocks.append(block)
        block.copyMemory(from: bytes, byteCount: bytes.count)
        return UnsafeRawPointer(block)
    }
}

func withCMemory<Result>(_ body: (CMemory) throws(OrchError) -> Result) throws(OrchError) -> Result {
    let memory = CMemory()
    defer { memory.free() }
    return try body(memory)
}

func string(_ text: UnsafePointer<CChar>?) -> String { text.map { String(cString: $0) } ?? "" }

func bytes(_ start: UnsafeRawPointer?, _ length: Int) -> [UInt8] {
    start.map { Array(UnsafeRawBufferPointer(start: $0, count: length)) } ?? []
}

/// A value of one of C's families of constants. A newer library may have values that have no name here.
public protocol OrchConstant: RawRepresentable, Hashable, Sendable where RawValue == UInt32 {
    init(rawValue: UInt32)
}

extension OrchConstant {
    init(_ value: UInt32) { self.init(rawValue: value) }
}

/// What C's sizeof says of a structure of the interface.
func sizeOf<Struct>(_ type: Struct.Type) -> UInt32 { UInt32(MemoryLayout<Struct>.size) }
