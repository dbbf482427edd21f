-- Grants a read/write lock for writing, if the lock is free, or the leases of all readers are
-- over.
--
-- KEYS[1]  lock
-- KEYS[2]  writer's intent
-- KEYS[3]  fencing counter; only for a fenced lock
-- ARGV[1]  lease, milliseconds
-- ARGV[2]  owner; a new one for every grant
-- ARGV[3]  beginning of the keys of read holds
-- ARGV[4]  how long the intent lasts, milliseconds; 0 for a writer that does not wait
--
-- reply    {1, token}       acquired; token 0 for an unfenced lock
--          {0, pttl, owner, kept}  refused; the time until the first hold ends, -1 without an
--                           end; its owner, '' if unknown; kept is 1 if the intent keeps new
--                           readers out
--          {-1, key, type}  the key is no read/write lock
local mode, shared, exclusive = look(KEYS[1], ARGV[2])
if stranger(mode) then
    return {-1, KEYS[1], mode}
end
local held = shared + exclusive > 0
if not held and mode ~= 'none' then
    local ttl = redis.call('pttl', KEYS[1])
    if mode == 'write' or ttl == -1 then -- a lock without TTL is foreign, or broken
        return {0, ttl, writer(KEYS[1]) or '', 0}
    end
    local first, _, whose = readers(KEYS[1], ARGV[3])
    if first and ARGV[4] == '0' then
        return {0, first, whose, 0}
    elseif first then
        local _, what = intention(KEYS[2])
        if what then
            return {-1, KEYS[2], what}
        end
        redis.call('set', KEYS[2], ARGV[2], 'px', ARGV[4])
        return {0, first, whose, 1}
    end
end

local awaited, what
if not held then
    awaited, what = intention(KEYS[2])
    if what then
        return {-1, KEYS[2], what}
    end
end

local token = '0'
if KEYS[3] then
    token = newest(KEYS[3])
    if not token then
        return strange(KEYS[3])
    end
end
if KEYS[3] and (not held or token == '0') then -- or the counter has gone meanwhile
    token = following(KEYS[3], token)
end
if held then -- the answer to an earlier delivery was lost
    extend(KEYS[1], ARGV[3], ARGV[2], shared, shared, tonumber(ARGV[1]))
    return {1, number(token)}
end
if mode == 'read' then -- all its readers were taken out
    redis.call('del', KEYS[1])
end
redis.call('hset', KEYS[1], 'mode', 'write', ARGV[2] .. ':write', 1)
local armed = redis.pcall('pexpire', KEYS[1], ARGV[1])
if armed ~= 1 then -- not DEL, to which a user may have lost the right together with PEXPIRE
    redis.call('hdel', KEYS[1], 'mode', ARGV[2] .. ':write')
    return armed
end
if awaited then
    redis.call('del', KEYS[2])
end
return {1, number(token)}
