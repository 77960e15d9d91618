"""The HTTP decoder: pieces of any size, and input that is not HTTP."""

from __future__ import annotations

import unittest
from typing import Optional, Tuple

from forkd._http import AnswerDecoder, ClosedEarly, ProtocolError, encode_chunk, encode_head


def decode(data: bytes, size: Optional[int] = None, is_closed: bool = False) -> Tuple[AnswerDecoder, bytes]:
    """Head and whole body, decoded from pieces of this size."""
    decoder = AnswerDecoder()
    pieces = [data[i : i + (size or len(data))] for i in range(0, len(data), size or len(data))] + ([b""] if is_closed else [])
    body = b""
    feed = iter(pieces)
    while not decoder.read_head():
        decoder.feed(next(feed))
    while True:
        piece = decoder.read_body()
        if piece is None:
            decoder.feed(next(feed))
        elif piece == b"":
            for rest in feed:
                decoder.feed(rest)
            return decoder, body
        else:
            body += piece


class Answers(unittest.TestCase):
    def test_bodies_in_pieces_of_any_size(self) -> None:
        answers = [
            (b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello", b"hello", True),
            (b"HTTP/1.1 200\r\nTransfer-Encoding: Chunked\r\n\r\n3;x=y\r\nhel\r\n2 \r\nlo\r\n0\r\nA: b\r\n\r\n", b"hello", True),
            (b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nConnection: Close\r\nContent-Length: 0\r\n\r\n", b"", False),
            (b"HTTP/1.1 204 No Content\r\n\r\n", b"", True),
            (b"HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\nok", b"ok", False),
        ]
        for data, wanted, can_reuse in answers:
            for size in (None, 1, 2, 7):
                with self.subTest(data, size=size):
                    decoder, body = decode(data, size)
                    self.assertEqual(body, wanted)
                    self.assertEqual(decoder.can_reuse, can_reuse)
                    self.assertTrue(decoder.is_complete)

    def test_a_body_until_the_connection_closes(self) -> None:
        decoder, body = decode(b"HTTP/1.1 200 OK\r\n\r\nuntil the end", 4, is_closed=True)
        self.assertEqual((body, decoder.can_reuse), (b"until the end", False))

    def test_headers_that_come_twice_are_joined(self) -> None:
        decoder, _ = decode(b"HTTP/1.1 204 X\r\nVary: a\r\nVary:b \r\nContent-Length: 3\r\nContent-Length: 3\r\n\r\n")
        self.assertEqual(decoder.headers["vary"], "a, b")

    def test_trailers(self) -> None:
        decoder, _ = decode(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\nX-Why: no space\r\n\r\n")
        self.assertEqual(decoder.trailers, {"x-why": "no space"})

    def test_bytes_beyond_the_end_spoil_the_connection(self) -> None:
        decoder, _ = decode(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nokHTTP/1.1 200 OK")
        self.assertFalse(decoder.is_complete)

    def test_an_answer_that_is_cut_off(self) -> None:
        whole = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n"
        for end in range(len(whole)):
            with self.subTest(end), self.assertRaises(ClosedEarly):
                decode(whole[:end] or b"", 3 if end else 1, is_closed=True)

    def test_input_that_is_not_http_is_refused(self) -> None:
        for data in (
            b"SSH-2.0-OpenSSH\r\n\r\n",
            b"HTTP/2 200 OK\r\n\r\n",
            b"HTTP/1.1 099 X\r\n\r\n",
            b"HTTP/1.1 101 Switching\r\n\r\n",
            b"HTTP/1.1 200 OK\r\nno colon\r\n\r\n",
            b"HTTP/1.1 200 OK\r\na: b\r\n folded\r\n\r\n",
            b"HTTP/1.1 200 OK\r\nbad name: x\r\n\r\n",
            b"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n",
            b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nxx",
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n",
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nx\r\n",
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nab\r\n",
            b"x" * 70_000,
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1;" + b"x" * 70_000,
        ):
            with self.subTest(data[:60]), self.assertRaises(ProtocolError):
                decode(data)


class Requests(unittest.TestCase):
    def test_a_head_and_chunks(self) -> None:
        self.assertEqual(encode_head("GET", "/x?y", {"a": "b"}), b"GET /x?y HTTP/1.1\r\na: b\r\n\r\n")
        self.assertEqual(encode_chunk(b"hello") + encode_chunk(b""), b"5\r\nhello\r\n0\r\n\r\n")
