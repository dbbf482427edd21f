-- Ends an owner's grant of a read/write lock, whatever the hold counts say, and its wait, and
-- passes the lock on.
--
-- KEYS[1]  lock
-- KEYS[2]  queue; the lock has a key only while its slot moves, see apart.lua
-- KEYS[3]  the owner's first read hold: for servers that want it declared
-- KEYS[4]  fencing counter; only for a fenced lock
-- ARGV[1]  owner
-- ARGV[2]  beginning of the keys of read holds
-- ARGV[3]  PUBLISH, SPUBLISH, or both
-- ARGV[4]  unlock channel
-- ARGV[5]  more tickets to take out: owners, with spaces between
-- ARGV[6]  1 if another client asks: waiters of the owner's client are told by a message as well
--
-- reply    {1}                      released
--          {1, error, lines, more}  released; error, if not '', is why the server refuses the
--                                   announcement; lines, if not '', are for waiters of the owner's
--                                   client; more is 1 if more tickets are to be served by another
--                                   release
--          {0, '', '', more}        the owner does not hold the lock
--
-- A repetition, after a lost answer, changes nothing. Readers of the owner's client, of whom the lost
-- answer told, ask for themselves.
local owner = ARGV[1]
local l = {key = KEYS[1], queue = KEYS[2], counter = KEYS[4], prefix = ARGV[2], commands = ARGV[3], unlocks = ARGV[4]}
local led = false -- the first in the queue is among the tickets
if l.queue then
    for ticket in string.gmatch(ARGV[5], '%S+') do
        led = led or first(l.queue) == ticket
        redis.pcall('zrem', l.queue, ticket)
    end
    redis.pcall('zrem', l.queue, owner, '!' .. owner .. ':') -- a late request may have left the own ticket
end
local mode, reads, writes = look(l.key, owner)
local held, message = reads + writes > 0, '-0'
local queued = l.queue and first(l.queue)
if not held then
    local answer = nothing(l.key, owner .. ':write')
    if answer ~= 0 or stranger(mode) or not queued then
        return answer ~= 0 and answer or {0}
    end
end
for n = 1, reads do
    drop(hold(l.prefix, owner, n))
end
local holder = ''
if writes > 0 then
    message = '+1'
    redis.call('del', l.key)
    mode = 'none'
elseif mode == 'read' then
    local ttl, last
    if held then
        redis.call('hdel', l.key, owner)
    end
    ttl, holder, last = alive(l.key, l.prefix, 1)
    if not ttl then
        redis.call('del', l.key)
        mode = 'none'
    elseif held and last and last >= 0 then
        -- As Redisson does, it shortens the lock's TTL to that of the last reader, but only if all were
        -- looked at. Of a sample the last may end long before the others do. The longer TTL only keeps
        -- writers in Java out if the last readers die.
        if last < redis.call('pttl', l.key) then
            redis.call('pexpire', l.key, math.max(last, 1))
        end
    end
elseif mode == 'write' then
    holder = writer(l.key) or ''
end

l.mode = mode
local own, failure, lines, count = held and ARGV[6] ~= '1' and client(owner) or nil, nil, nil, 0
if not l.queue then
    failure = mode == 'none' and refusal(announce(l.commands, l.unlocks, message))
elseif mode == 'none' then
    settle(l.queue, l.commands, owner)
    failure, lines, count = pass(l, own, message)
elseif queued and mode == 'read' then -- a ticket that kept readers out may have gone
    local _, text, _, granted = serve(l, own)
    lines, count = text, granted
end
-- Foreign owners who are left tell only those who listen to the unlock channel: the first does when
-- it has asked.
if queued and count == 0 and mode ~= 'none' and (held or led) and holder ~= '' and foreign(holder) then
    lines = prompt(l.queue, l.commands, own, 1)
end
local more = count == portion and 1 or 0
if not held then
    return {0, '', '', more}
end
return {1, failure or '', lines or '', more}
