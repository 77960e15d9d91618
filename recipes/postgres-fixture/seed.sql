-- A small shop. Put your own schema and data in place of it.
begin;

create table customers (
  id bigint generated always as identity primary key,
  name text not null,
  email text not null unique
);

create table orders (
  id bigint generated always as identity primary key,
  customer bigint not null references customers on delete cascade,
  total numeric(10, 2) not null check (total >= 0),
  placed_at timestamptz not null
);

insert into customers (name, email)
select format('Customer %s', n), format('customer%s@example.org', n)
from generate_series(1, :customers) as n;

-- The same rows every time: a test can count on each of them.
insert into orders (customer, total, placed_at)
select 1 + n % :customers, (n * 7 % 10000) / 100.0, timestamptz '2026-01-01 00:00:00+00' + n * interval '1 minute'
from generate_series(1, :orders) as n;

create index on orders (customer);
commit;

-- What a fork would otherwise do by itself, each one again.
vacuum analyze;
checkpoint;
