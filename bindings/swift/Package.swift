// swift-tools-version: 6.1
import PackageDescription

// liborch is found by pkg-config: see README.md for one that is not in a place that pkg-config knows.
let package = Package(
    name: "Orch",
    platforms: [.macOS(.v14)],
    products: [.library(name: "Orch", targets: ["Orch"])],
    targets: [
        .systemLibrary(name: "COrch", pkgConfig: "liborch"),
        .target(name: "Orch", dependencies: ["COrch"]),
        .executableTarget(name: "LeakCheck", dependencies: ["Orch", "COrch"], path: "Tests/LeakCheck"),
        .testTarget(name: "OrchTests", dependencies: ["Orch"]),
    ],
    swiftLanguageModes: [.v6]
)
