//! A rank's side of its card: windows and registers, mapped into the process.

use super::CardPort;
use crate::dimmnet2::card::LlcmWord;
use crate::dimmnet2::card::access::{COMMAND, SET_READ_ADDR, STORE, word_at};
use crate::kernel::Client;
use crate::time::Time;
use std::borrow::BorrowMut;

/// A rank's side of its card.
pub struct MappedCard<C> {
    /// The rank's access to the job.
    pub client: C,
    /// Bytes of a window.
    window: u32,
}

impl<C: BorrowMut<Client>> MappedCard<C> {
    /// The card of the client's rank, with windows of `window` bytes.
    pub fn new(client: C, window: u32) -> MappedCard<C> {
        MappedCard { client, window }
    }

    /// Events say only that LLCM has changed, which the driver reads itself.
    fn drop_events(&mut self) {
        while self.client.borrow_mut().event().is_some() {}
    }
}

impl<C: BorrowMut<Client>> CardPort for MappedCard<C> {
    fn charge(&mut self, cause: &'static str, cost: Time) {
        self.client.borrow_mut().charge(cause, cost);
    }

    fn store(&mut self, window: u32, bytes: &[u8]) {
        self.client
            .borrow_mut()
            .command(STORE, &[&window.to_le_bytes(), bytes]);
    }

    fn command(&mut self, words: &[u32]) {
        let bytes: Vec<u8> = words.iter().flat_map(|w| w.to_le_bytes()).collect();
        self.client.borrow_mut().command(COMMAND, &[&bytes]);
    }

    fn set_read_addr(&mut self, sender: u32, nra: u32) {
        let words = [sender.to_le_bytes(), nra.to_le_bytes()];
        self.client
            .borrow_mut()
            .command(SET_READ_ADDR, &[words.as_flattened()]);
    }

    fn sync(&mut self) {
        self.client.borrow_mut().sync();
        self.drop_events();
    }

    fn can_defer_poll(&self) -> bool {
        self.client.borrow().can_defer_poll()
    }

    fn defer_poll(&mut self) {
        self.client.borrow_mut().defer_poll();
    }

    fn sync_or_wait(&mut self, period: Time) {
        self.client.borrow_mut().sync_or_wait(period);
        self.drop_events();
    }

    fn word(&self, word: LlcmWord) -> u32 {
        self.client.borrow().word(word_at(word, self.window))
    }

    fn load(&self, window: u32, into: &mut [u8]) {
        self.client.borrow().read(window as usize, into);
    }

    fn wait(&mut self, period: Time) {
        self.client.borrow_mut().wait(period);
        self.drop_events();
    }
}
