//! The loop's handling of file transfers.

use super::{Agent, Stream};
use crate::failure::Failure;

impl Agent {
    /// Handles the result of an upload's step.
    pub(super) fn end_upload(&mut self, stream: u32, ended: Result<bool, Failure>) {
        if let Err(failure) = &ended {
            failure.report(stream, &mut self.outbox);
        }
        if !matches!(ended, Ok(false)) {
            self.streams.remove(&stream);
        }
    }

    /// Sends files to the host in turn; `true` if one of them could send more.
    pub(super) fn send_files(&mut self) -> bool {
        let (streams, outbox) = (&mut self.streams, &mut self.outbox);
        let mut more = false;
        let mut ended = Vec::new();
        let mut next = None;
        for range in [self.turn..u32::MAX, 0..self.turn] {
            for (stream, state) in streams.range_mut(range) {
                if let Stream::Download(download) = state {
                    if outbox.is_full() {
                        next.get_or_insert(*stream);
                    } else if download.pump(*stream, outbox) {
                        ended.push(*stream);
                    } else {
                        more |= download.has_more();
                    }
                }
            }
        }
        self.turn = next.unwrap_or(0);
        for stream in ended {
            streams.remove(&stream);
        }
        more
    }
}
