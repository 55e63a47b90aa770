# Reads until the end of what the client sends, then sends it all back.
import os, socketserver


class Handler(socketserver.BaseRequestHandler):
    def handle(self):
        pieces = []
        while piece := self.request.recv(65536):
            pieces.append(piece)
        if pieces and pieces[0].startswith(b"reset"):
            import socket, struct
            self.request.sendall(b"half")
            self.request.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            self.request.close()
            return
        self.request.sendall(b"".join(pieces))


class Server(socketserver.ThreadingTCPServer):
    request_queue_size = 128
    daemon_threads = True


Server(("127.0.0.1", int(os.environ["PORT"])), Handler).serve_forever()
