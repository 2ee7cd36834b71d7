//! The progress of the MX level: polling the card, and blocking calls that wait for it.

use super::{Endpoint, Match, Mx, Request, Status};
use crate::driver::Malformed;
use crate::kernel::Client;
use crate::rapidio::driver::lower::Lower;

impl<L: Lower> Mx<L> {
    /// Lets the model catch up with the client, and makes progress. Returns the number of events.
    ///
    /// # Errors
    /// A peer has sent bytes that are not valid.
    pub fn poll(&mut self, c: &mut Client) -> Result<usize, Malformed> {
        c.charge("MX: polling", self.costs.poll);
        c.sync();
        let count = self.progress(c)?;
        c.end_poll(count > 0);
        Ok(count)
    }

    /// Blocks until a request is done, and returns its status.
    ///
    /// # Errors
    /// A peer has sent bytes that are not valid.
    pub fn wait(&mut self, c: &mut Client, request: Request) -> Result<Status, Malformed> {
        loop {
            if let Some(status) = self.test(request) {
                return Ok(status);
            }
            self.poll_or_wait(c)?;
        }
    }

    /// Blocks until a request of an endpoint is done whose match bits match.
    ///
    /// # Errors
    /// A peer has sent bytes that are not valid.
    pub fn wait_any(
        &mut self,
        c: &mut Client,
        endpoint: Endpoint,
        wanted: Match,
    ) -> Result<(Request, Status), Malformed> {
        loop {
            if let Some(done) = self.test_any(endpoint, wanted) {
                return Ok(done);
            }
            self.poll_or_wait(c)?;
        }
    }

    fn poll_or_wait(&mut self, c: &mut Client) -> Result<(), Malformed> {
        if self.poll(c)? == 0 {
            c.wait(self.costs.poll);
        }
        Ok(())
    }
}
