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

-- intention returns the owner that says that it waits to write, nothing if none does; for a
-- key that is no string, which is nobody's intent, and may be a lock, nil and its type.
local function intention(key)
    local whose = redis.pcall('get', key)
    if type(whose) ~= 'table' then
        return whose or nil
    elseif elsewhere(whose) then
        return nil
    end
    local what = redis.call('type', key).ok
    if what == 'none' or what == 'string' then -- not the key is at fault: fail with that
        redis.call('get', key)
    end
    return nil, what
end

-- retract ends anybody's intent, and tells whether there was one.
local function retract(key)
    return intention(key) and redis.call('del', key) == 1
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

-- readers takes those readers out whose leases are over, and returns when the
-- first and when the last of the others ends, and whose the first is; nothing if there is none. Redisson
-- leaves the fields of readers that died to the TTL of the hash, which others
-- prolong. A field that is no reader's stays, and keeps writers out.
local function readers(lock, prefix)
    local first, last, whose
    local all = redis.call('hgetall', lock)
    for i = 1, #all, 2 do
        local owner, holds = all[i], tonumber(all[i + 1])
        if owner ~= 'mode' then
            local ttl
            if holds and string.find(owner, ':', 1, true) then
                ttl = left(lock, prefix, owner, holds)
            else
                ttl = redis.call('pttl', lock)
            end
            if ttl then
                if not first or ttl < first then
                    first, whose = ttl, owner
                end
                last = math.max(last or ttl, ttl)
            else
                redis.call('hdel', lock, owner)
            end
        end
    end
    return first, last, whose
end
