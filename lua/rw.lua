-- Stands in front of the scripts of the read/write lock.
--
-- The hash of the lock has a field `mode`, `read` or `write`, and the hold counts of its owners:
-- of reads in the field `owner`, of writes in `owner:write`. Each read hold has a key of
-- its own as well; the TTL of that key is the lease of the hold.

-- hold names the key of an owner's n-th read hold.
local function hold(prefix, owner, n)
    return prefix .. owner .. ':rwlock_timeout:' .. n
end

-- look returns the mode of a lock, 'none' if it is free, and the read and write
-- holds of an owner; in place of the mode, what else the key holds.
local function look(lock, owner)
    local found = redis.pcall('hmget', lock, 'mode', owner)
    local mode = found[1]
    if mode == 'read' then
        return mode, tonumber(found[2]) or 0, 0
    elseif mode == 'write' then
        return mode, tonumber(found[2]) or 0, tonumber(redis.call('hget', lock, owner .. ':write')) or 0
    end
    local what = redis.call('type', lock).ok
    if what == 'hash' then
        if found.err then -- not the key is at fault: fail with that
            redis.call('hmget', lock, 'mode')
        end
        local only = redis.pcall('hlen', lock) == 1 and redis.pcall('hgetall', lock) or {}
        local plain = only[2] and string.find(only[1], ':', 1, true) and string.find(only[2], '^%d+$')
        what = plain and 'plain lock' or 'hash without a mode'
    end
    return what, 0, 0
end

-- stranger tells of a look that it met something else than the lock.
local function stranger(mode)
    return mode ~= 'none' and mode ~= 'read' and mode ~= 'write'
end

-- extend makes the lease of an owner and of each of its read holds at least so
-- long. It had some of those, and shall have others. PEXPIRE first and always: a server
-- out of memory refuses HSET and SET as a script's first write but not as its second.
--
-- It fails if a hold that there was is not here, but on the other node of a cluster whose
-- slot moves: a second one here would be in the way of that. A command with two keys is
-- refused then if this node has one of them only.
local function extend(lock, prefix, owner, had, shared, lease)
    redis.call('pexpire', lock, math.max(redis.call('pttl', lock), lease))
    for n = 1, shared do
        local key = hold(prefix, owner, n)
        local ttl = redis.call('pttl', key)
        if ttl == -2 and n <= had then
            redis.call('exists', lock, key)
        end
        if ttl < lease then
            redis.call('set', key, 1, 'px', lease)
        end
    end
end

-- elsewhere tells of a reply that the key is not here because the slot moves: as most
-- servers put it, or Redis 8.
local function elsewhere(reply)
    return type(reply) == 'table' and (string.find(reply.err, 'non local key', 1, true)
        or string.find(reply.err, 'undeclared keys were accessed during rehashing', 1, true))
end

-- drop deletes a key, unless it is elsewhere: there it ends by itself.
local function drop(key)
    local dropped = redis.pcall('del', key)
    if type(dropped) == 'table' and not elsewhere(dropped) then
        redis.call('del', key) -- fails again
    end
end

-- left returns what is left of a reader's lease, nil if that is over. A reader whose hold
-- is on another node, as the slot moves, counts as one for as long as the lock does.
local function left(lock, prefix, owner, holds)
    local most
    for n = 1, holds do
        local key = hold(prefix, owner, n)
        local ttl = redis.pcall('pttl', key)
        if elsewhere(ttl) or ttl == -2 and elsewhere(redis.pcall('exists', lock, key)) then
            ttl = redis.call('pttl', lock)
        elseif type(ttl) == 'table' then
            ttl = redis.call('pttl', key) -- fails again
        end
        if ttl ~= -2 then
            most = math.max(most or ttl, ttl)
        end
    end
    return most
end

-- writer returns the owner that a lock in the mode 'write' has, nothing if it names none.
local function writer(lock)
    local all = redis.call('hgetall', lock)
    for i = 1, #all, 2 do
        local owner = string.match(all[i], '^(.+):write$')
        if owner then
            return owner
        end
    end
end

-- few readers are looked at one by one; of more, a sample of 8, or 1, and of 64 if all of the sample
-- have died: bound at most, as the server does nothing else meanwhile.
local few, sample, bound = 16, 8, 1024

-- examine looks at fields and values of the hash, and takes out readers whose leases are over:
-- Redisson leaves the fields of readers that died to the TTL of the hash, which others prolong.
-- It returns when the first of the others ends, and whose that is, or a foreign reader if there is
-- such; and when the last ends. nil if there is none. A field that is no reader's stays, and keeps
-- writers out.
local function examine(lock, prefix, all)
    local ttl, whose, last, strange
    for i = 1, #all, 2 do
        local owner, holds = all[i], tonumber(all[i + 1])
        if owner ~= 'mode' then
            local rest
            if holds and string.find(owner, ':', 1, true) then
                rest = left(lock, prefix, owner, holds)
            else
                rest = redis.call('pttl', lock)
            end
            if rest then
                if not ttl or rest < ttl then
                    ttl, whose = rest, owner
                end
                strange = foreign(owner) and owner or strange
                last = math.max(last or rest, rest)
            else
                redis.call('hdel', lock, owner)
            end
        end
    end
    return ttl, strange or whose, last
end

-- alive returns the same of all readers. If there are many, it looks at a sample of so many, as one that
-- lives keeps a writer out, and does not say when the last ends. nil if no reader lives. If too many have
-- died to find out, it returns 1 and '': the writer asks again after a millisecond.
local function alive(lock, prefix, some)
    for _ = 1, bound, 64 do
        local size = redis.call('hlen', lock) - 1
        if size <= few then
            return examine(lock, prefix, redis.call('hgetall', lock))
        end
        local ttl, whose = examine(lock, prefix, redis.call('hrandfield', lock, -some, 'withvalues'))
        if ttl then
            return ttl, whose
        end
        some = 64
    end
    return 1, ''
end
