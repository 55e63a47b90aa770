// SPDX-License-Identifier: Apache-2.0
import Foundation
import Orch

/// A small HTTP server on loopback, with a thread of its own: one request a connection.
final class HttpServer: Sendable {
    struct Request: Sendable {
        let head: String
        let body: String
        var line: String { String(head.prefix { $0 != "\r\n" }) }
    }

    let port: UInt16
    private let fd: Int32
    private let seen = Locked<[Request]>([])

    var requests: [Request] { seen.withLock { $0 } }
    var url: String { "http://127.0.0.1:\(port)" }

    init(_ answer: @escaping @Sendable (Request) -> (status: Int, body: String)) throws {
        (fd, port) = try listenOnLoopback()
        let fd = fd
        Thread.detachNewThread { [weak self] in
            while case let connection = accept(fd, nil, nil), connection >= 0 {
                defer { close(connection) }
                guard let request = HttpServer.read(connection) else { continue }
                self?.seen.withLock { $0.append(request) }
                let (status, body) = answer(request)
                send(
                    connection,
                    "HTTP/1.1 \(status) X\r\nContent-Type: application/json\r\n"
                        + "Content-Length: \(body.utf8.count)\r\n"
                        + "Connection: close\r\n\r\n" + body)
            }
            close(fd)
        }
    }

    // Ends the thread's accept.
    deinit { shutdown(fd, Int32(SHUT_RDWR)) }

    private static func read(_ fd: Int32) -> Request? {
        var text = ""
        while true {
            if let end = text.range(of: "\r\n\r\n") {
                let head = String(text[..<end.lowerBound])
                let body = String(text[end.upperBound...])
                let length =
                    head.lowercased().components(separatedBy: "content-length: ").dropFirst().first
                    .flatMap { Int($0.prefix { $0.isNumber }) } ?? 0
                if body.utf8.count >= length { return Request(head: head, body: body) }
            }
            var chunk = [UInt8](repeating: 0, count: 65536)
            let length = Glibc.read(fd, &chunk, chunk.count)
            if length <= 0 { return nil }
            text += String(decoding: chunk[..<length], as: UTF8.self)
        }
    }
}

func listenOnLoopback() throws -> (fd: Int32, port: UInt16) {
    let fd = socket(AF_INET, Int32(SOCK_STREAM.rawValue) | Int32(SOCK_CLOEXEC.rawValue), 0)
    var address = loopback(0)
    var length = socklen_t(MemoryLayout<sockaddr_in>.size)
    let bound = withUnsafeMutablePointer(to: &address) { address in
        address.withMemoryRebound(to: sockaddr.self, capacity: 1) { address in
            bind(fd, address, length) == 0 && listen(fd, 16) == 0 && getsockname(fd, address, &length) == 0
        }
    }
    guard bound else { throw NotYet(description: "no loopback socket: \(errno)") }
    return (fd, UInt16(bigEndian: address.sin_port))
}

private func loopback(_ port: UInt16) -> sockaddr_in {
    var address = sockaddr_in()
    address.sin_family = sa_family_t(AF_INET)
    address.sin_port = port.bigEndian
    address.sin_addr.s_addr = UInt32(0x7f00_0001).bigEndian
    return address
}

private func send(_ fd: Int32, _ text: String) {
    let bytes = Array(text.utf8)
    var done = 0
    while done < bytes.count {
        let length = bytes[done...].withUnsafeBytes {
            send(fd, $0.baseAddress, $0.count, Int32(MSG_NOSIGNAL))
        }
        if length <= 0 { return }
        done += length
    }
}

/// One POST; the whole answer, with its head. Blocks a thread of its own.
func post(_ port: UInt16, _ path: String, _ body: String, _ headers: [String] = []) async -> String {
    await withCheckedContinuation { done in
        Thread.detachNewThread {
            let fd = socket(AF_INET, Int32(SOCK_STREAM.rawValue) | Int32(SOCK_CLOEXEC.rawValue), 0)
            defer { close(fd) }
            var address = loopback(port)
            _ = withUnsafePointer(to: &address) { address in
                address.withMemoryRebound(to: sockaddr.self, capacity: 1) {
                    connect(fd, $0, socklen_t(MemoryLayout<sockaddr_in>.size))
                }
            }
            let head =
                [
                    "POST \(path) HTTP/1.1", "Host: broker", "Content-Type: application/json",
                    "Content-Length: \(body.utf8.count)", "Connection: close",
                ] + headers
            send(fd, head.joined(separator: "\r\n") + "\r\n\r\n" + body)
            var text = ""
            var chunk = [UInt8](repeating: 0, count: 65536)
            while case let length = read(fd, &chunk, chunk.count), length > 0 {
                text += String(decoding: chunk[..<length], as: UTF8.self)
            }
            done.resume(returning: text)
        }
    }
}
