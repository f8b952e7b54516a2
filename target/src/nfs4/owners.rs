//! Owners and groups as names of the host with a domain (RFC 8881 section 5.9).
//!
//! Callers under RPCSEC_GSS are told such names, others numbers: a client without Kerberos uses the
//! numbers of its users as they are. Any caller may set both. The host's databases are asked on
//! helper threads, and their answers are remembered by [`Accounts`].

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use millrace_gss::{Account, AccountDirectory, AccountKind, AccountQuestion, Accounts};
use millrace_reactor::Clock;
use millrace_store::posix::helpers::{HelperLimits, Helpers};
use millrace_store::{ACCESS_ENTRIES_MAX, ClientKey, Store};
use millrace_wire::nfs4::{
    AccessControlList, Attribute, AttributeNumber, Attributes, Bitmap, OperationOutcome,
    OperationStatus,
};
use millrace_wire::xdr::{Decode, Decoder};

use super::attributes::ObjectAttributes;
use super::compound::CompoundRun;
use super::seam::{CallOrigin, StateSeam};
use super::{acl, decimal};
use crate::log_limit::LogLimit;
use crate::rpc::reverse::until;

/// How long an operation waits for the host's databases. Then the client calls again.
const PATIENCE: Duration = Duration::from_secs(4);

/// Longest name without its domain.
const NAME_MAX: usize = 256;

/// Threads that ask, and questions that wait for them.
const LIMITS: HelperLimits = HelperLimits {
    threads: 4,
    queue: 256,
};

/// Attributes with names.
const OF_OWNERS: Bitmap = Bitmap::of(&[
    AttributeNumber::Acl,
    AttributeNumber::Owner,
    AttributeNumber::OwnerGroup,
]);

/// A user or group by number, and as clients are told it.
type AccountNumber = (AccountKind, u32);
type AccountText = Rc<[u8]>;

/// The domain of the names of this host's users and groups. All reactors share it.
#[derive(Clone)]
pub struct OwnerDomain {
    domain: Arc<str>,
    accounts: Arc<Accounts>,
    helpers: Helpers,
    warnings: Arc<Mutex<LogLimit>>,
}

impl OwnerDomain {
    /// Names with this domain, of the users and groups of a directory.
    #[must_use]
    pub fn new(domain: &str, directory: impl AccountDirectory) -> Self {
        Self {
            domain: domain.into(),
            accounts: Arc::new(Accounts::new(directory)),
            helpers: Helpers::new("account-names", LIMITS),
            warnings: Arc::default(),
        }
    }

    /// What a string asks for, if it is a name of this domain.
    fn question(&self, kind: AccountKind, text: &[u8]) -> Option<AccountQuestion> {
        let (name, domain) = std::str::from_utf8(text).ok()?.rsplit_once('@')?;
        let is_name = !name.is_empty() && name.len() <= NAME_MAX && !name.contains('\0');
        let is_own = is_name && domain.eq_ignore_ascii_case(&self.domain);
        is_own.then(|| AccountQuestion::Name(kind, name.into()))
    }

    /// An account as clients are told it; its number if its name will not do.
    fn text(&self, account: Option<Account>) -> Option<AccountText> {
        let name = account?.name;
        let is_name = !name.is_empty() && name.len() <= NAME_MAX;
        is_name.then(|| format!("{name}@{}", self.domain).into_bytes().into())
    }

    /// Asks the host, on a helper thread.
    async fn ask(
        &self,
        question: AccountQuestion,
        client: ClientKey,
        clock: &Clock,
        deadline: Instant,
    ) -> OperationOutcome<Option<Account>> {
        if let Some(answer) = self.accounts.remembered(&question) {
            return Ok(answer);
        }
        let number = match &question {
            AccountQuestion::Number(..) => Some(question.clone()),
            AccountQuestion::Name(..) => None,
        };
        let (accounts, warnings) = (Arc::clone(&self.accounts), Arc::clone(&self.warnings));
        let job = self.helpers.run(client, move || {
            let answer = accounts.look_up(&question, deadline);
            if let Err(error) = &answer {
                let mut warnings = warnings.lock().unwrap_or_else(PoisonError::into_inner);
                if warnings.is_due(Instant::now()) {
                    tracing::warn!(%error, "the host's users and groups cannot be looked up");
                }
            }
            answer
        });
        match (until(clock, deadline, job).await, number) {
            (Some(Ok(Ok(answer))), _) => Ok(answer),
            (_, None) => Err(OperationStatus::Delay),
            // The number says who it is, too.
            (Some(_), Some(_)) => Ok(None),
            (None, Some(question)) => {
                self.accounts.do_without(question);
                Ok(None)
            }
        }
    }
}

/// The names of one reactor's callers.
pub(super) struct ReactorOwners {
    pub domain: OwnerDomain,
    pub clock: Clock,
}

/// The names in one COMPOUND.
pub(super) struct OwnerNames<'c> {
    of_reactor: &'c ReactorOwners,
    client: ClientKey,
    /// Whether the caller is told names.
    tells: bool,
    /// Users and groups whose names were wanted. `None`: it is not looked up yet.
    wanted: RefCell<BTreeMap<AccountNumber, Option<Option<AccountText>>>>,
}

impl<'c> OwnerNames<'c> {
    /// For a call.
    pub fn new(of_reactor: &'c ReactorOwners, origin: &CallOrigin<'_>) -> Self {
        Self {
            of_reactor,
            client: origin.address().into(),
            tells: origin.identity.security.service().is_some(),
            wanted: RefCell::default(),
        }
    }

    /// The name of a user or group, if it has one and is looked up.
    fn name(&self, number: AccountNumber) -> Option<AccountText> {
        let domain = &self.of_reactor.domain;
        let mut wanted = self.wanted.borrow_mut();
        let name = wanted.entry(number).or_insert_with(|| {
            let question = AccountQuestion::Number(number.0, number.1);
            let answer = domain.accounts.remembered(&question);
            answer.map(|account| domain.text(account))
        });
        name.clone().flatten()
    }

    /// Puts names in the place of numbers, as far as they are looked up.
    pub fn fill(&self, found: &mut ObjectAttributes, wanted: &Bitmap) {
        let (uid, gid) = (found.stored.uid, found.stored.gid);
        if wanted.has(AttributeNumber::Owner) {
            found.owner_name = self.name((AccountKind::User, uid));
        }
        if wanted.has(AttributeNumber::OwnerGroup) {
            found.group_name = self.name((AccountKind::Group, gid));
        }
        let list = found.acl.as_deref().map(Decoder::new);
        if let Some(Ok(list)) = list.map(|mut list| AccessControlList::decode(&mut list)) {
            found.acl = Some(acl::renamed(&list, |kind, who| {
                decimal::parse(who).and_then(|number| self.name((kind, number)))
            }));
        }
    }

    /// Looks up the names that [`Self::fill`] did not find. Whether there were any.
    pub async fn look_up(&self) -> OperationOutcome<bool> {
        let missing: Vec<AccountNumber> = {
            let wanted = self.wanted.borrow();
            let missing = wanted.iter().filter(|(_, name)| name.is_none());
            missing.map(|(number, _)| *number).collect()
        };
        let deadline = self.of_reactor.clock.now() + PATIENCE;
        for &(kind, number) in &missing {
            let question = AccountQuestion::Number(kind, number);
            let account = self.ask(question, deadline).await?;
            let name = self.of_reactor.domain.text(account);
            self.wanted.borrow_mut().insert((kind, number), Some(name));
        }
        Ok(!missing.is_empty())
    }

    async fn ask(
        &self,
        question: AccountQuestion,
        deadline: Instant,
    ) -> OperationOutcome<Option<Account>> {
        let ReactorOwners { domain, clock } = self.of_reactor;
        domain.ask(question, self.client, clock, deadline).await
    }

    /// The numbers of the names in attributes. Names of nobody are left out.
    async fn numbers<'a>(&self, attributes: &Attributes<'a>) -> OperationOutcome<OwnerNumbers<'a>> {
        let mut named = Vec::new();
        // Malformed ones are refused by whoever reads them.
        for attribute in attributes.iter().flatten() {
            match attribute {
                Attribute::Owner(owner) => named.push((AccountKind::User, owner)),
                Attribute::OwnerGroup(group) => named.push((AccountKind::Group, group)),
                Attribute::Acl(list) if list.len() <= ACCESS_ENTRIES_MAX => {
                    let entries = list.iter();
                    named.extend(entries.map(|entry| (acl::kind(entry.flags), entry.who)));
                }
                _ => {}
            }
        }
        let deadline = self.of_reactor.clock.now() + PATIENCE;
        let mut numbers = OwnerNumbers::default();
        for (kind, text) in named {
            let question = self.of_reactor.domain.question(kind, text);
            let question = question.filter(|_| !numbers.0.contains_key(&(kind, text)));
            let Some(question) = question else { continue };
            if let Some(account) = self.ask(question, deadline).await? {
                numbers.0.insert((kind, text), account.number);
            }
        }
        Ok(numbers)
    }
}

/// The users and groups that strings in arguments mean.
#[derive(Debug, Default)]
pub(super) struct OwnerNumbers<'a>(BTreeMap<(AccountKind, &'a [u8]), u32>);

impl OwnerNumbers<'_> {
    /// The user or group of a string: decimal digits, or a name that is known.
    pub fn parse(&self, kind: AccountKind, text: &[u8]) -> OperationOutcome<u32> {
        let named = self.0.get(&(kind, text)).copied();
        // The largest number means no owner to the host.
        let named = named.filter(|number| *number != u32::MAX);
        let number = decimal::parse(text).or(named);
        number.ok_or(OperationStatus::BadOwner)
    }
}

impl<'c, S: Store, H: StateSeam> CompoundRun<'c, S, H> {
    /// Names for the caller, if it is told names and wants attributes that have some.
    pub fn told_names(&self, wanted: &Bitmap) -> Option<&OwnerNames<'c>> {
        let owners = self.owners.as_ref().filter(|owners| owners.tells);
        owners.filter(|_| !wanted.intersection(&OF_OWNERS).is_empty())
    }

    /// Puts names in the place of numbers, for callers that are told names.
    pub async fn name_owners(
        &self,
        found: &mut ObjectAttributes,
        wanted: &Bitmap,
    ) -> OperationOutcome<()> {
        let Some(names) = self.told_names(wanted) else {
            return Ok(());
        };
        names.fill(found, wanted);
        if Box::pin(names.look_up()).await? {
            names.fill(found, wanted);
        }
        Ok(())
    }

    /// The numbers of the names in attributes. Names of nobody are left out.
    pub async fn owner_numbers<'a>(
        &self,
        attributes: &Attributes<'a>,
    ) -> OperationOutcome<OwnerNumbers<'a>> {
        match &self.owners {
            Some(owners) => Box::pin(owners.numbers(attributes)).await,
            None => Ok(OwnerNumbers::default()),
        }
    }

    /// Puts the given strings in the place of those that were found where they mean the same.
    pub async fn unify_owners(
        &self,
        found: &mut ObjectAttributes,
        given: &Attributes<'_>,
    ) -> OperationOutcome<()> {
        if self.owners.is_none() {
            return Ok(());
        }
        let numbers = self.owner_numbers(given).await?;
        for attribute in given.iter().flatten() {
            match attribute {
                Attribute::Owner(owner) => {
                    let is_same = numbers.parse(AccountKind::User, owner) == Ok(found.stored.uid);
                    found.owner_name = is_same.then(|| owner.into());
                }
                Attribute::OwnerGroup(group) => {
                    let is_same = numbers.parse(AccountKind::Group, group) == Ok(found.stored.gid);
                    found.group_name = is_same.then(|| group.into());
                }
                Attribute::Acl(list) => {
                    let numbered = acl::renamed(&list, |kind, who| {
                        let number = numbers.parse(kind, who).ok()?;
                        Some(number.to_string().into_bytes().into())
                    });
                    if found.acl.as_ref() == Some(&numbered) {
                        found.acl = Some(acl::renamed(&list, |_, _| None));
                    }
                }
                _ => {}
            }
        }
        Ok(())
    }
}

#[cfg(test)]
#[path = "owners_tests.rs"]
mod tests;
