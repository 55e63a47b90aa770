// SPDX-License-Identifier: Apache-2.0
import COrch

/// What a call of the library failed with.
public struct OrchError: Error, Hashable, Sendable, CustomStringConvertible {
    /// A stable code: `ORCH_EINVAL` is `.einval`, and so on. A newer library may have codes that have no name
    /// here.
    public struct Code: RawRepresentable, Hashable, Sendable, CustomStringConvertible {
        public let rawValue: Int32

        public init(rawValue: Int32) { self.rawValue = rawValue }

        init<Value: BinaryInteger>(_ value: Value) { rawValue = Int32(value) }

        /// The name in C: "ORCH_EINVAL".
        public var name: String { String(cString: orch_code_name(rawValue)) }
        /// A short English text.
        public var text: String { String(cString: orch_code_text(rawValue)) }
        public var description: String { name }
    }

    public let code: Code
    /// The operating system's errno behind it, or 0.
    public let errno: Int32
    /// What happened, to what, and what to do: for a person.
    public let message: String
    /// The channel or step that failed ("unix.path", "mount.proc"), or "".
    public let step: String

    public init(_ code: Code, _ message: String = "", errno: Int32 = 0, step: String = "") {
        self.code = code
        self.errno = errno
        self.message = message.isEmpty ? code.text : message
        self.step = step
    }

    /// Copies an error that somebody else owns.
    init(copying error: OpaquePointer) {
        code = Code(orch_error_code(error))
        errno = orch_error_errno(error)
        message = String(cString: orch_error_message(error))
        step = String(cString: orch_error_step(error))
    }

    public var description: String { step.isEmpty ? "\(code): \(message)" : "\(code) (\(step)): \(message)" }
}

extension OrchError.Code {
    public static let einval = Self(ORCH_EINVAL)
    public static let enomem = Self(ORCH_ENOMEM)
    public static let esys = Self(ORCH_ESYS)
    public static let e2big = Self(ORCH_E2BIG)
    public static let etimedout = Self(ORCH_ETIMEDOUT)
    public static let edeadlk = Self(ORCH_EDEADLK)
    public static let eforked = Self(ORCH_EFORKED)
    public static let ebusy = Self(ORCH_EBUSY)
    public static let eclosed = Self(ORCH_ECLOSED)
    public static let enoent = Self(ORCH_ENOENT)
    public static let eexist = Self(ORCH_EEXIST)
    public static let eunenforceable = Self(ORCH_EUNENFORCEABLE)
    public static let eversion = Self(ORCH_EVERSION)
    public static let ehelper = Self(ORCH_EHELPER)
    public static let eproto = Self(ORCH_EPROTO)
    /// Also what an `await` of this package throws when its task was cancelled.
    public static let ecanceled = Self(ORCH_ECANCELED)
    public static let estate = Self(ORCH_ESTATE)
    public static let econflict = Self(ORCH_ECONFLICT)
    public static let eambiguous = Self(ORCH_EAMBIGUOUS)
    public static let epermit = Self(ORCH_EPERMIT)
    public static let elocked = Self(ORCH_ELOCKED)
    public static let eschema = Self(ORCH_ESCHEMA)
    public static let enetfs = Self(ORCH_ENETFS)
    public static let epoisoned = Self(ORCH_EPOISONED)
    public static let ecorrupt = Self(ORCH_ECORRUPT)
    public static let enospc = Self(ORCH_ENOSPC)
    public static let edenied = Self(ORCH_EDENIED)
    public static let ebudget = Self(ORCH_EBUDGET)
    public static let eupstream = Self(ORCH_EUPSTREAM)
    public static let eparse = Self(ORCH_EPARSE)
    public static let etoobig = Self(ORCH_ETOOBIG)
    public static let enotsup = Self(ORCH_ENOTSUP)
    public static let espawn = Self(ORCH_ESPAWN)
    public static let eneedhuman = Self(ORCH_ENEEDHUMAN)
}

/// Makes a call whose last argument is `reterr`, and throws what it reports.
@discardableResult
func check(_ call: (UnsafeMutablePointer<OpaquePointer?>) -> Int32) throws(OrchError) -> Int32 {
    var error: OpaquePointer?
    let code = call(&error)
    guard code < Int32(ORCH_OK) else { return code }
    guard let error else { throw OrchError(OrchError.Code(code)) }
    defer { orch_error_free(error) }
    throw OrchError(copying: error)
}
