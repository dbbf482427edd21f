-- Grants a read/write lock to an owner whose turn it is, or has it stand in the queue.
--
-- KEYS[1]  lock
-- KEYS[2]  queue
-- KEYS[3]  the owner's first read hold
-- KEYS[4]  fencing counter; only for a fenced lock
-- ARGV[1]  lease, milliseconds
-- ARGV[2]  owner; a new one for every grant
-- ARGV[3]  beginning of the keys of read holds
-- ARGV[4]  PUBLISH, SPUBLISH, or both
-- ARGV[5]  1 for a reader, 0 for a writer
-- ARGV[6]  claim, milliseconds, less than 8192; 0 if the owner does not wait
-- ARGV[7]  how the owner hears: see queue.lua
--
-- reply    {1, token}         acquired; the token of a reader is that of the newest writer, and that
--                             of an unfenced lock 0. No token is reserved: readers read the counter,
--                             and a writer that has become a reader would have a lesser one than they
--          {0, pttl, owner, time, before, new, length, absent, awaited, mute}  refused; as ask.lua, and
--            pttl     the rest of the lease of one who holds the lock, -1 without an end; 1 if
--                     the owner is to ask again at once
--            owner    whose lease that is, a foreign one if such was seen; '' if unknown
--            awaited  1 if readers may have the lock, and a waiting writer keeps this one out
--            mute     1 if the server refuses messages for tickets: the owner asks by a timer
--          {-1, key, type}    the key is no read/write lock
local owner, lease, shared, waits = ARGV[2], tonumber(ARGV[1]), tonumber(ARGV[5]), ARGV[6] ~= '0'
local l = {key = KEYS[1], queue = KEYS[2], counter = KEYS[4], prefix = ARGV[3], commands = ARGV[4]}
local mode, reads, writes = look(l.key, owner)
if stranger(mode) then
    return {-1, l.key, mode}
end
if reads + writes > 0 then -- the answer to an earlier delivery was lost, or a message
    local token = '0'
    if l.counter then
        token = newest(l.counter)
        if not token then
            return strange(l.counter)
        end
    end
    extend(l.key, l.prefix, owner, reads, reads, lease) -- first, as a server out of memory refuses a script its first SET only
    if l.counter then
        local record = '!' .. owner .. ':'
        local without = writes > 0 and redis.pcall('zscore', l.queue, record) == tostring(bare)
        if without or token == '0' then -- the grant had no token, or the counter has gone since
            token = following(l.counter, token)
        end
        if without then -- a repetition gets the same token
            redis.call('zadd', l.queue, 5, record)
        end
    end
    return {1, number(token)}
end
local length, none = tickets(l.queue)
if none then
    return none
end
local _, _, record = first(l.queue)
if record then
    length = length - 1
end

-- The dead keep nobody out: the lock is free if no reader lives.
local ttl, holder = -2, ''
if mode ~= 'none' then
    ttl = redis.call('pttl', l.key)
    if mode == 'write' or ttl == -1 then -- a lock without TTL is foreign, or broken
        mode, holder = 'write', writer(l.key) or ''
    elseif shared == 0 or length > 0 then
        ttl, holder = alive(l.key, l.prefix, sample)
        if not ttl then
            redis.call('del', l.key)
            mode = 'none'
        end
    end
end
l.mode = mode
if mode == 'none' and record then
    settle(l.queue, l.commands, owner)
end
if length == 0 and admits(l, shared) then -- as most locks
    return give(l, owner, shared, lease)
end

local place, new = 0, 0
if waits then
    place, new = stand(l.queue, owner, ARGV[6], ARGV[7], shared)
    if type(place) == 'table' then
        return place
    end
end
if mode ~= 'write' then
    local mine, _, failure, count = serve(l, nil, owner, lease)
    if not mine and admits(l, shared) and not first(l.queue) then -- nobody is before the owner
        mine = give(l, owner, shared, lease)
    elseif not mine and l.mode == 'none' and waits and new == 0 and failure and failure.err then
        -- The server refuses messages, so the tickets in front cannot be told. The lock goes to whoever
        -- asks and has waited: it would be nobody's until the first ticket does.
        mine = give(l, owner, shared, lease)
        if mine[1] == 1 then
            redis.call('zrem', l.queue, owner)
        else
            mine = nil
        end
    end
    if mine then
        return mine
    elseif failure and failure[1] == -1 then -- no counter
        if new == 1 then -- the answer tells of no ticket, and nobody would take it out
            redis.call('zrem', l.queue, owner)
        end
        return failure
    elseif l.mode == 'none' then -- the server refuses to hand it over: it is free, and the first may ask
        ttl, holder = 0, ''
    elseif count == portion then -- others follow
        ttl, holder = 1, ''
    elseif count > 0 then
        ttl, holder = redis.call('pttl', l.key), l.holder
    elseif not ttl then
        ttl, holder = redis.call('pttl', l.key), ''
    end
end
local answer = refused(l.queue, l.commands, owner, place, new, length, ARGV[7], ttl, holder)
answer[9] = shared == 1 and l.mode == 'read' and 1 or 0
-- Nobody listens to this channel.
answer[10] = waits and refusal(announce(l.commands, channel(l.queue) .. ':', '')) and 1 or 0
return answer
